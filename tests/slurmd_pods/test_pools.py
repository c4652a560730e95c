"""Pools of slurmd Pods beside the real systems (docs/pools.md): slurmctld, slurmrestd, slurmd and
kube-apiserver."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deploy.local.accounting import Reservation, reserved
from deploy.local.cluster import Cluster
from deploy.local.kubernetes_config import POOLS_NAMESPACE
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors, eventually, eventually_not
from tests.end_to_end.agent_account import token_of_a_pod
from tests.end_to_end.test_own_node import Caller
from tests.slurmd_pods.evidence import Evidence
from tests.slurmd_pods.fleet import CRASHES, Fleet
from tests.slurmd_pods.native_jobs import NativeJobs
from tests.slurmd_pods.observer import Observer
from tests.slurmd_pods.world import NODES, POWER_SAVING, World, pools
from wellknown.names import POOL, REVISION
from wellknown.slurmd_pod import pod_name

pytestmark = pytest.mark.real

RESERVED = 'slurm_extender_pool_nodes{nodes="reserved",pool="dyn"}'
ROLL_OUTS = int(os.environ.get("POOLS_ROLL_OUTS", "3"))
"""Under load; `make test-pools` has 20 of them."""


@pytest.fixture(scope="module", params=["26.05", "24.11"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    spec = ClusterSpec(
        release=request.param,
        nodes=1,
        dynamic_nodes=len(NODES),
        kill_wait=10,
        pools=pools(),
        slurm_conf=(*POWER_SAVING, "ReturnToService=2"),
    )
    with (
        tempfile.TemporaryDirectory(prefix="pools-") as directory,
        Cluster.up(spec, Path(directory)) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def whole(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    actors = Actors(cluster)
    with Fleet(cluster, NODES).running(tmp_path_factory.mktemp("tokens")) as fleet:
        yield World(actors, fleet)
    actors.close()


@pytest.fixture
def world(whole: World) -> Iterator[World]:
    """All four Nodes serve, with the first template."""
    whole.actors.begin()
    whole.write(pools())
    whole.label(*NODES)
    whole.all_serve(*NODES)
    yield whole
    whole.actors.clean_up()
    assert whole.fleet.seen.ended_busy == 0


def test_nodes_join_and_run_pods_and_native_jobs_side_by_side(world: World) -> None:
    job = world.sbatch(30, "-w", NODES[0], "-n", "4")
    eventually(lambda: world.runs(job) == NODES[0], "the native job runs")
    annotations = {"partition": "dynamic", "required-nodes": NODES[0]}
    world.actors.create("p", gpus=1, annotations=annotations)
    assert world.actors.bound("p") == NODES[0]
    node = world.nodes()[NODES[0]]
    assert node["instance_type"] == "slurm-extender/dyn"
    assert set(node["features"]) == {"dynamic"}
    labels = json.loads(
        world.cluster.kubectl(
            "get", "pod", "-n", POOLS_NAMESPACE, pod_name(NODES[0]), "-o", "json"
        ).stdout
    )["metadata"]["labels"]
    assert labels[POOL] == "dyn"
    revisions = world.cluster.kubectl(
        "get", "controllerrevisions", "-n", POOLS_NAMESPACE, "-o", "name"
    ).stdout
    assert labels[REVISION] in revisions
    assert "node-1" not in world.images()


def test_a_roll_out_waits_for_jobs_and_goes_on_below_a_pod(world: World) -> None:
    job = world.sbatch(25, "-w", NODES[0])
    eventually(lambda: world.runs(job), "the native job runs")
    world.actors.create("p", annotations={"partition": "dynamic", "required-nodes": NODES[1]})
    world.actors.bound("p")
    world.write(pools("v2"))
    beside = [NODES[1]] if world.cluster.spec.release == "26.05" else []
    idle = [*beside, *NODES[2:]]
    eventually(lambda: {n for n, i in world.images().items() if i == "v2"} >= set(idle), "v2", 60)
    assert world.images()[NODES[0]] == "v1"
    eventually(lambda: world.completed(job), "the job", 40)
    if not beside:
        # 24.11's placeholder is a batch job: its step ends with slurmd
        assert world.images()[NODES[1]] == "v1"
        world.actors.delete("p")
    world.all_serve(*NODES, image="v2")
    if beside:
        assert world.actors.see("p") is not None


def test_what_slurm_is_told_of_nodes_changes(world: World) -> None:
    world.write(pools(slurm={"features": ["dynamic", "fast"], "weight": 7}))
    eventually(
        lambda: all("fast" in world.nodes().get(node, {"features": []})["features"] for node in NODES),
        "the feature on all nodes",
        60,
    )
    world.all_serve(*NODES)
    assert {world.nodes()[node]["weight"] for node in NODES} == {7}


def test_a_node_that_a_person_has_slurm_forget_is_told_anew(world: World) -> None:
    """What the agent has found since then, say: Slurm takes it when it makes the node."""

    def gres(node: str) -> str:
        return str(world.nodes().get(node, {"gres": "?"})["gres"])

    node, other = NODES[:2]
    world.write(pools(slurm={"gres": None}))
    eventually(lambda: not any(map(gres, NODES)), "no node has devices", 60)
    world.all_serve(*NODES)
    world.fleet.gres = "gpu:h100:4"
    try:
        for each in (node, other):
            if each == node:
                world.cluster.run_slurm("scontrol", "delete", f"nodename={each}")
            world.cluster.kubectl("delete", "pod", "-n", POOLS_NAMESPACE, pod_name(each), "--wait=false")
        eventually(lambda: gres(node) == "gpu:h100:4", "the node has devices", 60)
        world.all_serve(*NODES)
        assert gres(other) == ""
    finally:
        world.fleet.gres = ""


def test_a_roll_out_goes_on_below_an_adopted_pod(world: World) -> None:
    cluster, node = world.cluster, NODES[1]
    cluster.stop("extender")
    cluster.start("extender", env={"SLURM_EXTENDER_UNMANAGED_PODS": "adopt"})
    try:
        world.actors.create("guest", cpu="2", scheduler="another-scheduler", nodeName=node)
        eventually(lambda: world.adopted("guest") == node, "the job of the adopted Pod runs", 30)
        world.write(pools("v6"))
        below = cluster.spec.release == "26.05"
        others = {each for each in NODES if below or each != node}
        eventually(lambda: {n for n, i in world.images().items() if i == "v6"} >= others, "v6", 60)
        if below:
            assert world.adopted("guest") == node
        else:
            # Its job is a batch job
            assert world.images()[node] == "v1"
        world.actors.delete("guest")
        world.all_serve(*NODES, image="v6")
    finally:
        cluster.stop("extender")
        cluster.start("extender")


def test_a_node_that_is_to_be_reserved_serves_on_and_is_not_forgotten(world: World) -> None:
    node, others = NODES[0], NODES[1:]
    with reserved(world.cluster, Reservation("course", (node,), ("root",), start="now+1hours")):
        world.write(pools(slurm={"weight": 9}))
        eventually(lambda: {world.weights().get(each) for each in others} == {9}, "told anew", 60)
        world.all_serve(*NODES)
        assert world.weights()[node] == 1
        assert world.metric("slurm_extender_pool_nodes")[RESERVED] == 1
        world.label(*others)
        time.sleep(5)
        world.all_serve(*NODES, within=5)
        assert world.metric("slurm_extender_pool_nodes")[RESERVED] == 1
        assert world.reserved("course") == [node]
    eventually(lambda: node not in world.nodes(), "it has left", 60)
    world.label(*NODES)
    eventually(lambda: world.weights().get(node) == 9, "it is back", 60)
    world.all_serve(*NODES)


def test_a_reservation_of_all_nodes_gets_those_that_join_and_is_not_waited_for(world: World) -> None:
    world.label(*NODES[1:])
    eventually(lambda: NODES[0] not in world.nodes(), "it has left", 60)
    maintenance = Reservation("all", ("ALL",), ("root",), start="now+1hours", flags=("MAINT",))
    with reserved(world.cluster, maintenance):
        assert {*world.reserved("all")} == {"node-1", *NODES[1:]}
        world.label(*NODES)
        eventually(lambda: {*world.reserved("all")} == {"node-1", *NODES}, "all are reserved", 30)
        world.write(pools(slurm={"weight": 11}, update={"maxUnavailable": 2}))
        eventually(lambda: {world.weights().get(each) for each in NODES} == {11}, "told anew", 60)
        eventually(lambda: {*world.reserved("all")} == {"node-1", *NODES}, "all are reserved", 30)


def test_a_template_that_crashes_stops_and_the_old_one_takes_it_back(
    world: World, evidence: Evidence
) -> None:
    world.fleet.forget()
    world.write(pools(CRASHES, update={"maxUnavailable": 3}))
    stopped = 'slurm_extender_pool_stopped{pool="dyn"}'
    eventually(lambda: world.metric("slurm_extender_pool_stopped").get(stopped) == 1, "stopped")
    time.sleep(3)
    tried = [node for node, made in world.fleet.seen.made.items() if CRASHES in dict(made)]
    evidence.crash_loop_stopped_after.append(len(tried))
    assert len(tried) == 2
    assert "fail; on dynamic-" in world.actors.trouble("roll-outs")
    eventually(lambda: len(world.open()) == 2, "the others are open")
    world.write(pools())
    world.all_serve(*NODES)
    assert world.metric("slurm_extender_pool_stopped")[stopped] == 0


def test_a_drained_node_is_waited_for(world: World) -> None:
    """kubectl drain: it cordons, and asks for the eviction again and again."""
    node = NODES[0]
    job = world.sbatch(8, "-w", node)
    eventually(lambda: world.runs(job), "the native job runs")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod_name(node), "namespace": POOLS_NAMESPACE},
    }
    path = f"{world.cluster.api_server_url}/api/v1/namespaces/{POOLS_NAMESPACE}/pods/{pod_name(node)}"

    def evict() -> int:
        return world.actors.api.post(f"{path}/eviction", json=eviction).status_code

    world.cluster.kubectl("cordon", node)
    assert evict() == 429
    while not world.completed(job):
        assert world.images().get(node) == "v1"
        assert evict() == 429
        time.sleep(0.5)
    eventually(lambda: evict() == 404, "the slurmd Pod gone")
    assert "DRAIN" in world.states()[node]
    world.cluster.kubectl("uncordon", node)
    world.all_serve(*NODES)


def test_a_smaller_pool_forgets_nodes(world: World) -> None:
    job = world.sbatch(6, "-w", NODES[3])
    eventually(lambda: world.runs(job), "the native job runs")
    world.write(pools(replicas=2))
    eventually(lambda: world.states().keys() == {NODES[0], NODES[3]}, "two nodes are left", 60)
    eventually(lambda: world.completed(job), "the job", 30)
    world.all_serve(NODES[0], NODES[3])
    world.label()
    eventually_not(world.states, "no node is left", 60)
    eventually_not(world.images, "no slurmd Pod is left")


def test_slurms_power_saving_ends_and_makes_pods(world: World, evidence: Evidence) -> None:
    node = NODES[2]
    world.cluster.run_slurm("scontrol", "update", f"NodeName={node}", "State=POWER_DOWN")
    eventually(lambda: node not in world.images(), "its Pod ended")
    eventually(lambda: "POWERED_DOWN" in world.states()[node], "powered down", 30)
    assert node not in world.images()
    world.fleet.forget()
    asked, began = time.time(), time.monotonic()
    job = world.sbatch(1, "-w", node)
    eventually(lambda: world.completed(job), "the job that woke it", 60)
    evidence.resume_to_first_line_s.append(round(world.first_line(job) - asked, 1))
    ((_, started),) = world.fleet.seen.made[node]
    evidence.resume_to_slurmd_s.append(round(started - began, 1))
    world.all_serve(*NODES)
    time.sleep(3)  # a second boot would take it down
    assert node in world.open()


def test_a_slurmd_pod_that_somebody_deletes_ends_after_its_jobs_and_comes_back(world: World) -> None:
    node = NODES[1]
    job = world.sbatch(6, "-w", node)
    eventually(lambda: world.runs(job), "the native job runs")
    name = pod_name(node)
    world.cluster.kubectl("delete", "pod", "-n", POOLS_NAMESPACE, name, "--wait=false")
    eventually(lambda: "DRAIN" in world.states()[node], "no more jobs come")
    eventually(lambda: world.completed(job), "the job", 30)
    world.all_serve(*NODES)


def test_a_persons_drain_stays(world: World) -> None:
    node = NODES[3]
    update = (f"NodeName={node}", "State=DRAIN", "Reason=loud disk")
    world.cluster.run_slurm("scontrol", "update", *update)
    world.write(pools("v3"))
    eventually(lambda: world.images() == dict.fromkeys(NODES, "v3"), "v3", 60)
    eventually(lambda: world.open() == set(NODES[:3]), "the others are open")
    assert world.nodes()[node]["reason"].startswith("loud disk")
    world.cluster.run_slurm("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")


def test_an_agent_may_make_the_slurmd_pod_of_its_own_node_and_no_other_pod(world: World) -> None:
    """Of another name it would take the place of another Node's."""
    pods = f"/api/v1/namespaces/{POOLS_NAMESPACE}/pods"
    own: dict[str, Any] = {"name": pod_name("node-1")}
    bare: dict[str, Any] = {"automountServiceAccountToken": False, "serviceAccountName": "default"}
    token = {"serviceAccountToken": {"path": "t"}}
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (own, bare, ""),
        ({"name": pod_name(NODES[0])}, bare, "a slurmd Pod is called slurmd- and the name of its Node"),
        (own, bare | {"nodeName": NODES[0]}, "the slurmd Pod of its own Node, and no other Pod"),
        (own, {}, "has no token"),
        (own, bare | {"volumes": [{"name": "t", "projected": {"sources": [token]}}]}, "has no token"),
    ]
    with (
        token_of_a_pod(world.cluster, "node-1") as mine,
        closing(Caller(world.cluster, mine)) as agent,
    ):
        for metadata, more, refused in cases:
            spec = {"nodeName": "node-1", "containers": [{"name": "slurmd", "image": "i"}]} | more
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            answer = agent.ask("POST", f"{pods}?dryRun=All", pod)
            assert answer.status_code == (403 if refused else 201), (metadata, more, answer.text)
            assert refused in answer.text
        assert agent.ask("DELETE", f"{pods}/{pod_name(NODES[0])}?dryRun=All").status_code == 403


def test_a_leader_that_is_killed_leaves_nothing_undone(world: World) -> None:
    world.write(pools("v4", update={"maxUnavailable": 2}))
    for _ in range(3):
        time.sleep(1.5)
        world.cluster.kill("extender")
        world.cluster.start("extender")
    world.all_serve(*NODES, image="v4")


def weight(number: int) -> int:
    """What Slurm is told by a template: each second one differs from the last in its image alone."""
    return 1 + (number + 1) // 2


@pytest.mark.timeout(60 + 60 * ROLL_OUTS)
def test_no_job_is_lost_in_roll_outs_under_load(world: World, evidence: Evidence) -> None:
    world.fleet.forget()
    jobs = NativeJobs(world.cluster, f"lines-{world.actors.round}")
    observer = Observer(world.cluster, limit=2)
    try:
        with observer.looking(), jobs.coming():
            for number in range(1, ROLL_OUTS + 1):
                slurm, update = {"weight": weight(number)}, {"maxUnavailable": 2}
                world.write(pools(f"r{number}", slurm=slurm, update=update))
                world.all_run(f"r{number}", weight(number), within=60)
                evidence.roll_outs += 1
            eventually(lambda: world.open() == set(NODES), "all are open")
    finally:
        images = [f"r{number}" for number in range(1, ROLL_OUTS + 1)]
        told_anew, drained = (world.fleet.starts(images[first::2]) for first in (0, 1))
        evidence.joined_s += observer.joined_s(told_anew)
        evidence.back_s += observer.joined_s(drained)
        evidence.replaced += len(told_anew) + len(drained)
        evidence.replaced_busy += world.fleet.seen.ended_busy
        evidence.beyond_limit += len(observer.beyond)
        evidence.looks += observer.looks
        evidence.waited += observer.waited
        evidence.jobs += len(jobs.states)
        evidence.jobs_lost += jobs.lost
    assert len(told_anew) + len(drained) == ROLL_OUTS * len(NODES)
    assert observer.waited
    assert not jobs.lost
    assert not observer.beyond
