"""Tests of the verbs for unmanaged Pods. Unmanaged Pods get only the capacity that Slurm's jobs
leave."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest

from extender.jobs.phase import Phase
from extender.jobs.tracked_job import TrackedJob
from extender.pod_request.pod import parse_pod
from extender.pod_request.translation import TranslationConfig
from extender.record.member import Member
from extender.record.members import Members
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.unmanaged.free_capacity import FULL, LEAVING, TAKEN, UNKNOWN
from slurm_client.errors import Unreachable
from slurm_client.in_memory import node
from slurm_client.job_state import JobState
from slurm_client.model import Node
from tests.builders import (
    Manifest,
    changed,
    kube_node,
    placeholder_job,
    placeholder_of,
    pod,
    pod_manifest,
    unmanaged,
    view,
)
from tests.clock import CpuClock
from tests.verbs.callers import BoundPods, FakeSlurm, Listeners
from wellknown.allocation import Allocation
from wellknown.lingering import LingeringNote
from wellknown.names import ADOPTED, JOB_ID, NODE

DAEMON_SET = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": True}]
OWN_NAMES = ("n1", "n2", "n3")
VIEW = view(kube_node("n4", labels={"slurm": "gpu-04"}), *map(kube_node, OWN_NAMES))
DOWN = Unreachable("slurmctld was not reached", number=1001)


def machine(name: str, *, cpus: int = 0, memory_mb: int = 0, gpus: int = 0, **given: Any) -> Node:
    """Returns a Slurm node with 8 CPUs, 16,000 MB and 4 GPUs. Jobs use the amounts in the arguments."""
    whole = node(name, cpus=8, memory_mb=16_000, gres="gpu:h100:4(S:0-1)")
    used = f"gpu:h100:{gpus}(IDX:0)" if gpus else "gpu:h100:0(IDX:N/A)"
    return replace(whole, cpus_allocated=cpus, memory_allocated_mb=memory_mb, gres_used=used, **given)


class Cluster:
    """Kubernetes and Slurm, and the extender's listeners."""

    def __init__(self, *pods: Manifest, nodes: tuple[Node, ...] = (), **given: Any) -> None:
        self.kubernetes = BoundPods(*pods)
        self.slurm = FakeSlurm(nodes=nodes, calls=self.kubernetes.calls)
        self.listeners = Listeners(self.kubernetes, self.slurm, VIEW, **given)

    async def filter(self, manifest: Manifest, *names: str) -> Any:
        return await self.listeners.ask("filter", {"Pod": manifest, "NodeNames": names})

    async def closed(self, manifest: Manifest) -> str | None:
        """Returns the reason why /filter closes n1; None if n1 is open. The call has no other Node."""
        answer = await self.filter(manifest, "n1")
        reason = answer.get("FailedAndUnresolvableNodes", {}).get("n1")
        assert answer["NodeNames"] == ([] if reason else ["n1"])
        return None if reason is None else str(reason)

    async def bind(self, manifest: Manifest, to: str = "n1") -> str:
        metadata = manifest["metadata"]
        call = {"PodName": metadata["name"], "PodNamespace": "default", "PodUID": metadata["uid"]}
        answer = await self.listeners.ask("bind", call | {"Node": to})
        return str(answer["Error"])

    async def known(self) -> Self:
        await self.listeners.occupancy.read()
        self.kubernetes.calls.clear()
        return self


# /filter


async def test_pod_fits_nodes_with_free_capacity_and_nodes_outside_slurm() -> None:
    nodes = (machine("n1", cpus=7), machine("n2", memory_mb=15_500), machine("gpu-04", gpus=3))
    cluster = await Cluster(nodes=nodes).known()
    names = ("n1", "n2", "n4", "elsewhere")
    for asked, closed in (({"cpu": "2"}, "n1"), ({"memory": "1Gi"}, "n2"), ({"gpus": 2}, "n4")):
        small = {"cpu": "1", "memory": "1Mi"}
        answer = await cluster.filter(unmanaged(**small | asked), *names)
        assert answer["FailedAndUnresolvableNodes"] == {closed: FULL}
        assert answer["NodeNames"] == [name for name in names if name != closed]


async def test_a_pod_that_fits_everywhere_gets_the_same_nodes_back() -> None:
    cluster = await Cluster(nodes=(machine("n1"),)).known()
    expected = {"NodeNames": ["n1", "n2"], "FailedNodes": {}}
    assert await cluster.filter(unmanaged(), "n1", "n2") == expected


async def test_only_slurm_nodes_are_closed_until_slurm_is_known() -> None:
    cluster = Cluster(nodes=(machine("n1"),))
    answer = await cluster.filter(unmanaged(), "n1", "n4", "elsewhere")
    assert answer["FailedAndUnresolvableNodes"] == {"n1": UNKNOWN, "n4": UNKNOWN}
    assert answer["NodeNames"] == ["elsewhere"]
    assert cluster.slurm.calls == [], "nobody waits for Slurm"


async def test_filter_of_a_pod_out_of_scope_is_an_error_until_slurm_is_known() -> None:
    """The extender does not wake a Pod out of scope. After a closed Node instead of an error, the Pod
    would wait for up to five minutes."""
    cluster = Cluster(nodes=(machine("n1", cpus=8),), scope="elsewhere")
    assert await cluster.filter(unmanaged(), "n1") == {"Error": UNKNOWN}
    assert (await cluster.filter(unmanaged(), "n1", "other"))["NodeNames"] == ["other"]
    await cluster.known()
    assert await cluster.closed(unmanaged()) == FULL


async def test_only_slurm_nodes_are_closed_while_slurm_does_not_answer() -> None:
    cluster = await Cluster(nodes=(machine("n1"),)).known()
    cluster.slurm.error = DOWN
    for _ in range(3):
        assert (await cluster.filter(unmanaged(), "n1", "n2"))["NodeNames"] == ["n1", "n2"]
        with pytest.raises(Unreachable):
            await cluster.listeners.occupancy.read()
    answer = await cluster.filter(unmanaged(), "n1", "n2")
    assert "Slurm has not answered since" in answer["FailedAndUnresolvableNodes"].pop("n1")
    assert answer["FailedAndUnresolvableNodes"] == {}
    cluster.slurm.error = None
    await cluster.known()
    assert await cluster.closed(unmanaged()) is None


async def test_daemonset_pod_fits_every_node() -> None:
    daemon = unmanaged()
    daemon["metadata"]["ownerReferences"] = DAEMON_SET
    assert (await Cluster().filter(daemon, "n1", "n2"))["NodeNames"] == ["n1", "n2"]


async def test_ignored_unmanaged_pods_fit_every_node() -> None:
    cluster = Cluster(unmanaged(), unmanaged_pods="ignore")
    assert await cluster.closed(unmanaged()) is None
    assert await cluster.bind(unmanaged()) == ""
    assert cluster.kubernetes.calls == ["read_pod", "bind_pod"]


@pytest.mark.alone
@pytest.mark.parametrize(("names", "within_ms"), [(50, 0.5), (5000, 6.0)])
async def test_filter_takes_little_cpu_time(names: int, within_ms: float) -> None:
    """Typical times are 0.05 and 1.4 ms."""
    every = [f"node-{number}" for number in range(names)]
    slurm = FakeSlurm(nodes=tuple(machine(name, cpus=7) for name in every))
    occupancy = Listeners(slurm=slurm, view=view(*map(kube_node, every))).occupancy
    await occupancy.read()
    took = []
    for _ in range(15):
        clock = CpuClock()
        assert len(occupancy.closed(unmanaged(cpu="2"), every)) == names
        took.append(clock.read() * 1000)
    assert min(took) < within_ms


# /bind


async def test_a_pod_that_fits_is_bound_without_a_job() -> None:
    cluster = await Cluster(unmanaged(), nodes=(machine("gpu-04", cpus=7),)).known()
    assert await cluster.bind(unmanaged(), "n4") == ""
    assert cluster.kubernetes.bindings == [("n4", {})]
    assert cluster.kubernetes.calls == ["read_pod", "list pods", "read node gpu-04", "bind_pod"]


@pytest.mark.parametrize("full", [{"cpus": 8}, {"memory_mb": 15_500}, {"gpus": 4}])
async def test_pod_is_not_bound_to_a_node_that_a_new_job_fills(full: dict[str, int]) -> None:
    asks = unmanaged(gpus=1)
    cluster = await Cluster(asks, nodes=(machine("n1"),)).known()
    cluster.slurm.all_nodes = (machine("n1", **full),)
    assert await cluster.bind(asks) == FULL
    assert cluster.kubernetes.bindings == []
    assert (await cluster.filter(asks, "n1"))["NodeNames"] == [], "the next /filter knows"


async def test_a_pod_is_not_bound_where_a_job_is_ending() -> None:
    ending = machine("n1", states=frozenset({"IDLE", "COMPLETING"}))
    assert await (await Cluster(unmanaged(), nodes=(ending,)).known()).bind(unmanaged()) == FULL


async def test_concurrent_binds_do_not_share_free_capacity() -> None:
    pods = [unmanaged(name, cpu="2") for name in "ab"]
    cluster = await Cluster(*pods, nodes=(machine("n1", cpus=5),)).known()
    answers = await asyncio.gather(*(cluster.bind(one) for one in pods))
    assert sorted(answers) == ["", FULL]
    assert len(cluster.kubernetes.bindings) == 1


async def test_bind_reads_only_the_slurm_node_of_the_pod() -> None:
    pods = [unmanaged(name) for name in "ab"]
    nodes = tuple(machine(name) for name in OWN_NAMES)
    cluster = await Cluster(*pods, nodes=nodes).known()
    answers = await asyncio.gather(*map(cluster.bind, pods, OWN_NAMES))
    assert answers == ["", ""]
    read = [call for call in cluster.slurm.calls if call.startswith("read node")]
    assert sorted(read) == ["read node n1", "read node n2"]


async def test_pod_is_not_bound_beside_containers_that_outlive_their_pod_and_job() -> None:
    cluster = await Cluster(unmanaged(), nodes=(machine("n1"),)).known()
    cluster.listeners.lingering_notes.add("n1", LingeringNote(7, "default/gone", 30.0))
    words = "containers of a Pod that was deleted by force still end there: default/gone"
    assert await cluster.bind(unmanaged()) == words


async def test_bind_before_the_first_reading_leaves_other_nodes_unknown() -> None:
    cluster = Cluster(unmanaged(), nodes=(machine("n1"), machine("n2", cpus=8)))
    assert await cluster.bind(unmanaged()) == ""
    answer = await cluster.filter(unmanaged(), "n1", "n2")
    assert answer["FailedAndUnresolvableNodes"] == {"n1": UNKNOWN, "n2": UNKNOWN}


async def test_node_removed_from_slurm_is_open_after_the_next_reading() -> None:
    """Some failures also cause a reply without the requested node, so only a reading of all nodes
    counts."""
    nodes = (machine("n1", cpus=8), machine("n2"))
    cluster = await Cluster(unmanaged(), nodes=nodes).known()
    cluster.slurm.all_nodes = nodes[1:]
    assert await cluster.bind(unmanaged()) == UNKNOWN
    assert cluster.kubernetes.bindings == []
    await cluster.known()
    assert await cluster.bind(unmanaged()) == ""


async def test_managed_pod_that_outlives_its_job_uses_capacity_until_it_is_gone() -> None:
    ours = pod_manifest("ours", cpu="4", node="n1", annotations={JOB_ID: "7", NODE: "n1"})
    cluster = await Cluster(unmanaged(cpu="5"), ours, nodes=(machine("n1"),)).known()
    assert await cluster.bind(unmanaged(cpu="5")) == FULL
    cluster.kubernetes.remove("pods", "ours")
    assert await cluster.bind(unmanaged(cpu="5")) == ""


async def test_no_pod_is_bound_to_slurm_nodes_while_slurm_does_not_answer() -> None:
    cluster = await Cluster(unmanaged(), nodes=(machine("n1"),)).known()
    cluster.slurm.error = DOWN
    assert "Slurm has not answered since" in await cluster.bind(unmanaged())
    assert cluster.kubernetes.bindings == []
    assert await cluster.bind(unmanaged(), "elsewhere") == ""


async def test_daemonset_pod_is_bound_without_a_request_to_slurm() -> None:
    daemon = unmanaged()
    daemon["metadata"]["ownerReferences"] = DAEMON_SET
    cluster = Cluster(daemon, nodes=(machine("n1", cpus=8),))
    assert await cluster.bind(daemon) == ""
    assert cluster.kubernetes.calls == ["read_pod", "bind_pod"]


# Managed Pods and unmanaged Pods on a node


def ours(cluster: Cluster, attempt: int = 1, cores: str = "") -> Manifest:
    """Returns an unbound Pod with a job on n1. The job has 2 CPUs."""
    job = placeholder_job(pod(name="ours"), node="n1", attempt=attempt, cores=(cores,))
    cluster.slurm.jobs[job.id] = job
    granted = Allocation(job.id, "n1", cores=cores).annotations()
    annotations = granted | {"slurm-extender.io/attempt": str(attempt)}
    manifest = pod_manifest("ours", cpu="2", gates=(), annotations=annotations)
    cluster.kubernetes.put("pods", manifest)
    return manifest


async def test_managed_pod_is_not_bound_if_unmanaged_pods_use_its_allocation() -> None:
    """The node has 8 CPUs, but a native job uses 4, the placeholder 2 and the unmanaged Pod 3.
    kube-scheduler counts 5, and Slurm counts 6."""
    cluster = await Cluster(unmanaged(cpu="3"), nodes=(machine("n1", cpus=4),)).known()
    assert await cluster.bind(unmanaged()) == ""
    cluster.slurm.all_nodes = (machine("n1", cpus=6),)
    granted = ours(cluster)
    assert await cluster.closed(granted) is None
    assert await cluster.bind(granted) == TAKEN
    assert await cluster.closed(granted) == TAKEN, "so that it is placed elsewhere"
    assert cluster.listeners.feasible_nodes == [], "nowhere else"
    answer = await cluster.filter(granted, "n1", "n2", "n3")
    assert set(answer["FailedAndUnresolvableNodes"].values()) == {TAKEN}
    ((_, told),) = cluster.listeners.feasible_nodes
    assert told.names == ("n2", "n3")
    another = ours(cluster, attempt=2)
    assert await cluster.closed(another) is None


async def test_managed_pod_is_bound_beside_unmanaged_pods_that_fit() -> None:
    cluster = await Cluster(unmanaged(cpu="2"), nodes=(machine("n1", cpus=4),)).known()
    assert await cluster.bind(unmanaged(cpu="2")) == ""
    cluster.slurm.all_nodes = (machine("n1", cpus=6),)
    assert await cluster.bind(ours(cluster)) == ""


async def test_allocation_beside_unmanaged_pods_needs_a_known_node() -> None:
    cluster = await Cluster(unmanaged(cpu="2"), nodes=(machine("n1", cpus=4),)).known()
    assert await cluster.bind(unmanaged(cpu="2")) == ""
    granted, nodes = ours(cluster), cluster.slurm.all_nodes
    cluster.slurm.all_nodes = ()
    assert await cluster.bind(granted) == UNKNOWN
    cluster.slurm.all_nodes = nodes
    assert await cluster.bind(granted) == "", "it keeps its allocation"


async def test_slurm_nodes_are_not_read_without_unmanaged_pods() -> None:
    cluster = await Cluster(nodes=(machine("n1", cpus=8),)).known()
    assert await cluster.bind(ours(cluster)) == ""
    assert cluster.kubernetes.calls == ["read_pod", "read job", "list pods", "bind_pod"]


# Managed Pods after the end of their jobs


def leaving(
    cluster: Cluster, state: str, cpu: str = "5", cores: str = "", **job_fields: Any
) -> Placeholder:
    """Adds a managed Pod on n1 with a job in this state, and returns the record. The leader does not
    know the state yet."""
    job = placeholder_job(pod(name="leaving"), state, node="n1", cores=(cores,), **job_fields)
    cluster.slurm.jobs[job.id] = job
    annotations = Allocation(job.id, "n1", cores=cores).annotations()
    manifest = pod_manifest("leaving", cpu=cpu, gates=(), node="n1", annotations=annotations)
    cluster.kubernetes.put("pods", manifest)
    return placeholder_of(
        parse_pod(manifest, TranslationConfig()), State.BOUND, job=TrackedJob(id=job.id)
    )


def leads(cluster: Cluster, manifest: Manifest, beside: Placeholder) -> None:
    seen = parse_pod(manifest, TranslationConfig())
    assert seen.scheduling.allocation is not None
    job_id = seen.scheduling.allocation.job_id
    record = placeholder_of(
        seen,
        State.ALLOCATED,
        members=(Member(seen, seen.scheduling.allocation),),
        job=TrackedJob(id=job_id),
    )
    cluster.listeners.leads({seen.uid: record}, holding=[beside])


async def test_bind_waits_for_a_recently_bound_pod_without_a_running_job() -> None:
    """The watch has not shown the Binding of the Pod `leaving` yet, and the job of this Pod has
    ended."""
    cluster = await Cluster(nodes=(machine("n1", cpus=5),)).known()
    manifest, beside = ours(cluster), leaving(cluster, "CANCELLED")
    assert beside.lead.scheduling.allocation is not None
    unbound = Member(changed(beside.lead, node=None), beside.lead.scheduling.allocation)
    leads(cluster, manifest, beside._replace(state=State.ALLOCATED, members=Members([unbound])))
    assert await cluster.bind(manifest) == LEAVING


@pytest.mark.parametrize("leader", [True, False])
@pytest.mark.parametrize(
    ("state", "allocated", "answer"),
    [
        ("CANCELLED", 5, LEAVING),
        ("CANCELLED", 3, ""),
        ("RUNNING", 8, ""),
        ("CANCELLED,COMPLETING", 5, LEAVING),
        ("CANCELLED,COMPLETING", 3, ""),
    ],
)
async def test_managed_pod_is_bound_after_the_previous_pod_is_gone(
    state: str, allocated: int, answer: str, *, leader: bool
) -> None:
    """The node has 8 CPUs. Slurm has given 2 CPUs to the new Pod, and the rest of `allocated` to native
    jobs. The leaving Pod still uses 5 CPUs. So the new Pod fits if `allocated` is 3, and does not fit if
    `allocated` is 5. kube-scheduler counts only the 7 CPUs of the Pods."""
    cluster = await Cluster(nodes=(machine("n1", cpus=allocated),)).known()
    manifest, beside = ours(cluster), leaving(cluster, state)
    if leader:
        leads(cluster, manifest, beside)
    assert await cluster.bind(manifest) == answer
    node_was_read = "read node n1" in cluster.kubernetes.calls
    assert node_was_read == (state != "RUNNING")
    if answer:
        cluster.kubernetes.remove("pods", "leaving")
        cluster.listeners.leads({})
        assert await cluster.bind(manifest) == ""


@pytest.mark.parametrize("leader", [True, False])
@pytest.mark.parametrize(
    ("cores", "state", "job", "answer"),
    [
        ("1-2", "CANCELLED", {}, LEAVING),
        ("1-2", "RUNNING", {"suspend_time": 1}, LEAVING),
        ("1-2", "RUNNING", {}, ""),  # the partition has OverSubscribe
        ("2-3", "CANCELLED", {}, ""),
    ],
)
async def test_a_pod_waits_for_the_pod_on_its_cores(
    cores: str, state: str, job: dict[str, Any], answer: str, *, leader: bool
) -> None:
    """Slurm has given away 2 of 8 CPUs (cores 0 and 1), so the 2 CPUs of the other Pod also fit."""
    cluster = await Cluster(nodes=(machine("n1", cpus=2),)).known()
    manifest, beside = ours(cluster, cores="0-1"), leaving(cluster, state, "2", cores, **job)
    if leader:
        leads(cluster, manifest, beside)
    assert await cluster.bind(manifest) == answer
    cluster.kubernetes.remove("pods", "leaving")
    cluster.listeners.leads({})
    assert await cluster.bind(manifest) == ""


@pytest.mark.parametrize("forgotten", ["the job", "its start"])
async def test_allocation_is_returned_if_slurm_lost_the_job_of_another_pod(forgotten: str) -> None:
    cluster = await Cluster(nodes=(machine("n1", cpus=5),)).known()
    manifest, beside = ours(cluster), leaving(cluster, "PENDING")
    if forgotten == "the job":
        del cluster.slurm.jobs[beside.job.id or 0]
    leads(cluster, manifest, beside)
    assert await cluster.bind(manifest) == TAKEN
    assert await cluster.closed(manifest) == TAKEN
    leaves = {"metadata": {"deletionTimestamp": "2026-11-22T00:00:00Z"}}
    cluster.kubernetes.edit("pods", "leaving", leaves)
    assert await cluster.bind(manifest) == LEAVING
    slowly = {"deletionTimestamp": "2999-11-22T00:00:00Z", "deletionGracePeriodSeconds": 86_400}
    cluster.kubernetes.edit("pods", "leaving", {"metadata": slowly})
    assert await cluster.bind(manifest) == TAKEN


async def test_pod_of_an_ended_job_uses_capacity_whatever_slurm_reports() -> None:
    cluster = await Cluster(nodes=(machine("n1", cpus=5),)).known()
    manifest, beside = ours(cluster), leaving(cluster, "CANCELLED")
    leads(cluster, manifest, beside._replace(state=State.EVICTING).with_phase(Phase.ENDED, 0.0))
    assert await cluster.bind(manifest) == LEAVING
    assert await cluster.closed(manifest) is None  # so the Pod waits for the end of the other Pod


# Adopted Pods with a job


def adopted(cluster: Cluster, state: str) -> None:
    """Adds a Pod with 5 CPUs on n1, and the job in the Pod's annotation."""
    adopted_pod = unmanaged("guest", cpu="5", node="n1", annotations={ADOPTED: "77"})
    cluster.kubernetes.put("pods", adopted_pod)
    job = placeholder_job(pod(name="guest"), node="n1")
    cluster.slurm.jobs[77] = replace(job, id=77, state=JobState.parse(state))


@pytest.mark.parametrize(
    ("state", "allocated", "answer"), [("RUNNING", 5, ""), ("RUNNING", 6, FULL), ("PENDING", 0, FULL)]
)
async def test_adopted_pod_with_a_running_job_is_counted_once(
    state: str, allocated: int, answer: str
) -> None:
    asks = unmanaged(cpu="3" if state == "RUNNING" else "4")
    cluster = Cluster(asks, nodes=(machine("n1", cpus=allocated),), unmanaged_pods="adopt")
    adopted(await cluster.known(), state)
    assert await cluster.bind(asks) == answer


async def test_adoption_annotation_is_ignored_if_adoption_is_off() -> None:
    asks = unmanaged(cpu="4")
    cluster = Cluster(asks, nodes=(machine("n1"),))
    adopted(await cluster.known(), "RUNNING")
    assert await cluster.bind(asks) == FULL


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        ("RUNNING", ""),
        ("CANCELLED", TAKEN),
        ("CANCELLED,COMPLETING", LEAVING),
        ("PENDING,COMPLETING", LEAVING),
    ],
)
async def test_managed_pod_is_bound_beside_adopted_pods_with_running_jobs(
    state: str, answer: str
) -> None:
    """All 8 CPUs are allocated: 5 to the adopted Pod `guest`, 2 to the placeholder, and 1 to a native
    job."""
    cluster = Cluster(nodes=(machine("n1", cpus=8),), unmanaged_pods="adopt")
    adopted(await cluster.known(), state)
    cluster.listeners.occupancy.pod_seen(cluster.kubernetes.read("pods", "guest"))
    cluster.listeners.occupancy.pod_seen(unmanaged("another", cpu="1", node="n1"))
    assert await cluster.bind(ours(cluster)) == answer


@pytest.mark.parametrize(
    ("bound_s", "adopting", "answer"), [(1, "adopt", LEAVING), (1, "fit", TAKEN), (9, "adopt", TAKEN)]
)
async def test_new_adopted_pod_may_be_counted_already(bound_s: int, adopting: str, answer: str) -> None:
    """The job of an adopted Pod may run before the annotation is written, so the Pod counts twice. The
    managed Pod still keeps its allocation."""
    cluster = Cluster(nodes=(machine("n1", cpus=8),), unmanaged_pods=adopting)
    adopted_pod = unmanaged("guest", cpu="5", node="n1")
    since = (datetime.now(UTC) - timedelta(seconds=bound_s)).isoformat(timespec="seconds")
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
    adopted_pod["status"] = {"conditions": [scheduled]}
    cluster.kubernetes.put("pods", adopted_pod)
    (await cluster.known()).listeners.occupancy.pod_seen(adopted_pod)
    assert await cluster.bind(ours(cluster)) == answer


async def test_slurm_nodes_are_not_read_if_all_adopted_pods_have_jobs() -> None:
    cluster = await Cluster(unmanaged(), nodes=(machine("n1"),), unmanaged_pods="adopt").known()
    assert await cluster.bind(unmanaged()) == ""
    cluster.kubernetes.remove("pods", "u")
    adopted(cluster, "RUNNING")
    granted = ours(cluster)
    assert await cluster.bind(granted) == ""
    again = granted | {"metadata": granted["metadata"] | {"name": "again"}}
    cluster.kubernetes.put("pods", again)
    cluster.kubernetes.calls.clear()
    assert await cluster.bind(again) == ""
    assert cluster.kubernetes.calls == ["read_pod", "read job", "list pods", "read states", "bind_pod"]


async def test_filter_does_not_count_adopted_pods_with_jobs() -> None:
    cluster = await Cluster(nodes=(machine("n1", cpus=5),), unmanaged_pods="adopt").known()
    occupancy, asks = cluster.listeners.occupancy, unmanaged(cpu="3")
    adopted_pod = unmanaged("guest", cpu="5", node="n1")
    occupancy.pod_seen(adopted_pod)
    assert (await cluster.filter(asks, "n1"))["NodeNames"] == []
    adopted_pod["metadata"]["annotations"] = {ADOPTED: "77"}
    occupancy.pod_seen(adopted_pod)
    assert await cluster.closed(asks) is None
    assert not occupancy.may_have_uncounted_pods("n1")


async def test_pod_to_be_adopted_needs_room_for_whole_slurm_cpus() -> None:
    """A Pod with half a CPU takes a whole CPU of Slurm. A Pod of a DaemonSet gets no job."""
    cluster = await Cluster(nodes=(machine("n1", cpus=6),), unmanaged_pods="adopt").known()
    occupancy = cluster.listeners.occupancy
    for name in ("d", "e"):
        daemon = unmanaged(name, cpu="500m", node="n1")
        daemon["metadata"]["ownerReferences"] = DAEMON_SET
        occupancy.pod_seen(daemon)
    assert await cluster.closed(unmanaged(cpu="500m")) is None
    occupancy.pod_seen(unmanaged("a", cpu="500m", node="n1"))
    assert (await cluster.filter(unmanaged(cpu="500m"), "n1"))["NodeNames"] == []


async def test_node_newer_than_the_last_reading_is_read_at_bind() -> None:
    pod = unmanaged(cpu="8")
    cluster = await Cluster(pod, nodes=(machine("n1"),)).known()
    cluster.slurm.all_nodes = (machine("n1"), machine("n2", cpus=8))
    assert await cluster.bind(pod, "n2") == FULL


async def test_node_is_not_open_before_the_first_reading_of_slurm_nodes() -> None:
    pod = unmanaged(cpu="8")
    cluster = Cluster(pod, nodes=())
    assert await cluster.bind(pod) == UNKNOWN
