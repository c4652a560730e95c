"""Tests of /preempt: the Pods that kube-scheduler may evict for another Pod."""

from collections.abc import Sequence
from typing import Any

import pytest

from extender.unmanaged import free_capacity
from extender.unmanaged.free_capacity import FULL
from slurm_client.errors import Unreachable
from slurm_client.model import Node
from tests.builders import Manifest, pod_manifest, unmanaged
from tests.verbs.callers import Listeners, body
from tests.verbs.test_unmanaged_pods import DAEMON_SET, DOWN, Cluster, machine
from wellknown.names import ADOPTED, JOB_ID, NODE

CRITICAL = 2_000_000_000


def proposal(*uids: str, violations: int = 0) -> Manifest:
    """Returns MetaVictims in the format of kube-scheduler."""
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}


def adopted_pod(name: str, node: str = "n1", cpu: str = "5", **given: Any) -> Manifest:
    """Returns an unmanaged Pod on a Node. The uid is the same as the name."""
    manifest = unmanaged(name, cpu=cpu, node=node, **given)
    manifest["metadata"]["uid"] = name
    return manifest


async def scene(*bound: Manifest, nodes: Sequence[Node] = (), **given: Any) -> Cluster:
    """Returns a cluster with these Pods on Nodes. By default, Slurm has the node n1 with 8 CPUs."""
    cluster = await Cluster(nodes=tuple(nodes) or (machine("n1"),), **given).known()
    for manifest in bound:
        cluster.listeners.occupancy.pod_seen(manifest)
    return cluster


async def preempt(cluster: Cluster, manifest: Manifest, **proposed: Manifest) -> Any:
    answer = await cluster.listeners.ask(
        "preempt", {"Pod": manifest, "NodeNameToVictims": None, "NodeNameToMetaVictims": proposed}
    )
    assert answer.keys() == {"NodeNameToMetaVictims"}
    return answer["NodeNameToMetaVictims"]


async def test_no_pod_is_preempted_for_a_managed_pod() -> None:
    sent = body("preempt")
    assert sent["NodeNameToMetaVictims"], "the call names victims"
    assert sent["Pod"]["spec"]["schedulerName"] == "slurm-scheduler"
    assert await Listeners().ask("preempt", sent) == {"NodeNameToMetaVictims": {}}


async def test_no_pod_is_preempted_for_a_managed_pod_on_a_node_outside_slurm() -> None:
    cluster = await scene(adopted_pod("low", "elsewhere"))
    assert await preempt(cluster, pod_manifest(priority=9), elsewhere=proposal("low")) == {}


async def test_proposal_on_a_node_outside_slurm_is_accepted() -> None:
    proposed = proposal("b", "a", "never-seen", violations=2)
    assert await preempt(await scene(), unmanaged(), elsewhere=proposed) == {"elsewhere": proposed}


async def test_proposal_is_accepted_only_if_the_victims_free_enough_capacity() -> None:
    """Each node has 8 CPUs. Jobs use 0, 0 and 3 CPUs, and the victims use 5 each. Another Pod with 2
    CPUs stays on n2."""
    nodes = (machine("n1"), machine("n2"), machine("n3", cpus=3))
    bound = [adopted_pod(f"low-{node}", node) for node in ("n1", "n2", "n3")]
    cluster = await scene(*bound, adopted_pod("stays", "n2", cpu="2"), nodes=nodes)
    proposed = {node: proposal(f"low-{node}") for node in ("n1", "n2", "n3")}
    for cpu, open_nodes in (("5", {"n1", "n2", "n3"}), ("6", {"n1", "n2"}), ("7", {"n1"}), ("9", set())):
        answer = await preempt(cluster, unmanaged(cpu=cpu, priority=9), **proposed)
        assert answer == {node: proposed[node] for node in open_nodes}


@pytest.mark.parametrize("full", [{"cpus": 8}, {"memory_mb": 15_900}, {"gpus": 4}])
async def test_eviction_does_not_free_what_jobs_have(full: dict[str, int]) -> None:
    cluster = await scene(adopted_pod("low", gpus=1), nodes=(machine("n1", **full),))
    asks = unmanaged(gpus=1, memory="1Gi", priority=9)
    assert await preempt(cluster, asks, n1=proposal("low")) == {}


async def test_no_managed_pod_is_preempted_even_for_a_critical_pod() -> None:
    annotations = {JOB_ID: "7", NODE: "n1"}
    ours = pod_manifest("ours", cpu="5", node="n1", annotations=annotations)
    jobless = pod_manifest("jobless", cpu="5", node="n1")
    cluster = await scene(adopted_pod("low"), ours, jobless)
    for priority in (9, CRITICAL):
        asks = unmanaged(priority=priority)
        for manifest in (ours, jobless):
            beside = proposal("low", manifest["metadata"]["uid"])
            assert await preempt(cluster, asks, n1=beside) == {}
        assert await preempt(cluster, asks, n1=proposal("low")) == {"n1": proposal("low")}


async def test_unknown_pod_is_not_preempted() -> None:
    cluster = await scene(adopted_pod("gone"))
    cluster.listeners.occupancy.pod_gone("gone")
    assert await preempt(cluster, unmanaged(), n1=proposal("gone")) == {}


async def only_elsewhere_is_open(cluster: Cluster) -> None:
    """Checks a proposal with Slurm's Node n1 and with another Node: only the other Node is open."""
    proposed = {"n1": proposal("low"), "elsewhere": proposal("any")}
    answer = await preempt(cluster, unmanaged(priority=9), **proposed)
    assert answer == {"elsewhere": proposal("any")}


async def test_no_pod_is_preempted_on_a_node_with_an_ending_job() -> None:
    ending = machine("n1", states=frozenset({"IDLE", "COMPLETING"}))
    await only_elsewhere_is_open(await scene(adopted_pod("low"), nodes=(ending,)))


async def test_no_pod_is_preempted_on_slurm_nodes_during_an_outage() -> None:
    cluster = await scene(adopted_pod("low"))
    cluster.slurm.error = DOWN
    for _ in range(3):
        with pytest.raises(Unreachable):
            await cluster.listeners.occupancy.read()
    await only_elsewhere_is_open(cluster)


@pytest.mark.parametrize("by", ["priority", "owner"])
async def test_critical_and_daemonset_pods_preempt_without_a_request_to_slurm(by: str) -> None:
    asks = unmanaged(cpu="5", priority=CRITICAL if by == "priority" else 9)
    if by == "owner":
        asks["metadata"]["ownerReferences"] = DAEMON_SET
    cluster = Cluster()  # Slurm's nodes are unknown
    cluster.listeners.occupancy.pod_seen(adopted_pod("low"))
    assert await preempt(cluster, asks, n1=proposal("low")) == {"n1": proposal("low")}
    assert cluster.slurm.calls == []


async def test_preemption_of_an_adopted_pod_with_a_job_frees_no_capacity() -> None:
    """Slurm's node has 8 CPUs, and the jobs of two adopted Pods use 6. A third adopted Pod has no job
    yet."""
    adopted = [adopted_pod(name, cpu="3", annotations={ADOPTED: "77"}) for name in ("a", "b")]
    cluster = await scene(
        *adopted, adopted_pod("new", cpu="2"), nodes=(machine("n1", cpus=6),), unmanaged_pods="adopt"
    )
    everybody = proposal("a", "b", "new")
    assert await preempt(cluster, unmanaged(cpu="3", priority=9), n1=everybody) == {}
    small = unmanaged(cpu="2", priority=9)
    assert await preempt(cluster, small, n1=proposal("a")) == {}, "who has its room stays"
    assert await preempt(cluster, small, n1=proposal("new")) == {"n1": proposal("new")}
    critical = unmanaged(cpu="3", priority=CRITICAL)
    assert await preempt(cluster, critical, n1=proposal("a")) == {"n1": proposal("a")}


async def test_no_pod_is_preempted_on_slurm_nodes_if_unmanaged_pods_are_ignored() -> None:
    await only_elsewhere_is_open(await scene(nodes=(machine("n1"),), unmanaged_pods="ignore"))


async def test_known_slurm_nodes_are_not_read_again() -> None:
    cluster = await scene(adopted_pod("low"))
    cluster.slurm.calls.clear()
    await preempt(cluster, unmanaged(priority=9), n1=proposal("low"))
    assert cluster.slurm.calls == []


@pytest.mark.parametrize("cpus", [0, 8])
async def test_stale_slurm_nodes_are_read_before_preemption(cpus: int) -> None:
    cluster = await scene(adopted_pod("low"))
    cluster.listeners.occupancy.stale = True
    cluster.slurm.all_nodes = (machine("n1", cpus=cpus),)
    answer = await preempt(cluster, unmanaged(priority=9), n1=proposal("low"))
    assert answer == ({} if cpus else {"n1": proposal("low")})
    assert cluster.slurm.calls[-1] == "read nodes"


@pytest.mark.parametrize("problem", ["fails", "is silent"])
async def test_no_pod_is_preempted_on_unread_nodes(
    problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_capacity, "_PATIENCE_S", 0.01)
    cluster = await scene(adopted_pod("low"))
    cluster.listeners.occupancy.stale = True
    cluster.slurm.error, cluster.slurm.silent = DOWN, problem == "is silent"
    await only_elsewhere_is_open(cluster)


async def test_nominated_node_is_open_while_the_victims_leave() -> None:
    """kube-scheduler counts the victims until the victims are gone. If the Node were closed,
    kube-scheduler would also evict Pods on other Nodes."""
    low, asks = adopted_pod("low"), unmanaged(cpu="8", priority=9)
    cluster = await scene(low)
    asks["status"] = {"nominatedNodeName": "n1"}
    assert await cluster.closed(asks) == FULL
    low["metadata"]["deletionTimestamp"] = "2026-11-24T00:00:00Z"
    cluster.listeners.occupancy.pod_seen(low)
    assert await cluster.closed(asks) is None
    assert await cluster.closed(unmanaged(cpu="8")) == FULL
    cluster.listeners.occupancy.pod_seen(adopted_pod("stays", cpu="1"))
    assert await cluster.closed(asks) == FULL


async def test_pod_is_not_bound_before_its_victims_are_gone() -> None:
    low, asks = adopted_pod("low"), unmanaged(cpu="8")
    low["metadata"]["deletionTimestamp"] = "2026-11-24T00:00:00Z"
    cluster = await scene(low)
    cluster.kubernetes.put("pods", low, asks)
    assert await cluster.bind(asks, "n1") == FULL
    cluster.kubernetes.remove("pods", "low")
    assert await cluster.bind(asks, "n1") == ""


async def test_node_newer_than_the_last_reading_counts_as_a_slurm_node() -> None:
    """Slurm may already have placed a managed Pod on the new node."""
    annotations = {JOB_ID: "7", NODE: "n2"}
    ours = pod_manifest("ours", cpu="5", node="n2", annotations=annotations)
    cluster = await scene(adopted_pod("low", node="n2"), ours)
    for victim in (ours["metadata"]["uid"], "low"):
        assert await preempt(cluster, unmanaged(priority=9), n2=proposal(victim)) == {}


async def test_no_pod_is_preempted_without_node_cache_capable() -> None:
    """Without nodeCacheCapable, /filter closes every Node, and reports the missing setting."""
    sent = {
        "Pod": unmanaged(),
        "NodeNameToVictims": {"elsewhere": {"Pods": [adopted_pod("low")], "NumPDBViolations": 0}},
        "NodeNameToMetaVictims": None,
    }
    assert await Listeners().ask("preempt", sent) == {"NodeNameToMetaVictims": {}}
