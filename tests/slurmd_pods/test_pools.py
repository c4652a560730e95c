"""Tests of pools of slurmd Pods with the real systems (docs/concepts/pools.md): slurmctld, slurmrestd,
slurmd and kube-apiserver."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from deploy.local.accounting import Reservation, reserved
from deploy.local.chart import POOLS_NAMESPACE
from tests.end_to_end.agent_account import token_of_a_pod
from tests.end_to_end.caller import Caller
from tests.eventually import eventually
from tests.slurmd_pods.conftest import serving
from tests.slurmd_pods.evidence import Evidence
from tests.slurmd_pods.fleet import CRASHES
from tests.slurmd_pods.native_jobs import NativeJobs
from tests.slurmd_pods.observer import Observer
from tests.slurmd_pods.page import SIZE
from tests.slurmd_pods.world import NODES, OTHERS, World, pools
from wellknown.names import DEVICE_PROBLEM, REVISION, SLURMD
from wellknown.slurmd_pod import TEMPLATES, pod_name, pull_pod_name

pytestmark = pytest.mark.real

RESERVED = 'slurm_extender_pool_nodes{nodes="reserved",pool="dyn"}'
ROLL_OUTS = int(os.environ.get("POOLS_ROLL_OUTS", "3"))
"""Number of roll-outs under load; `make test-pools` runs 20."""


@pytest.fixture
def world(whole: World) -> Iterator[World]:
    """All four Nodes take jobs. The image may still be the image of the test before, because a roll-out
    of the first image takes seconds."""
    yield from serving(whole, whole.image_of_all())


def test_a_roll_out_waits_for_jobs_and_continues_under_a_running_pod(world: World) -> None:
    job = world.sbatch(25, "-w", NODES[0])
    eventually(lambda: world.runs(job), "the native job runs")
    world.actors.create("p", annotations={"partition": "dynamic", "required-nodes": NODES[1]})
    world.actors.bound("p")
    world.write(pools("v2"))
    beside = [NODES[1]] if world.cluster.spec.release == "26.05" else []
    idle = [*beside, *NODES[2:]]
    eventually(lambda: {n for n, i in world.images().items() if i == "v2"} >= set(idle), "v2", 60)
    assert {(node, "v2") for node in idle} <= {*world.fleet.seen.pulled}
    assert world.images()[NODES[0]] == world.image
    eventually(lambda: world.completed(job), "the job", 40)
    if not beside:
        # The placeholder of Slurm 24.11 is a batch job, and would end with slurmd. So the pool does not
        # replace slurmd while the Pod runs.
        assert world.images()[NODES[1]] == world.image
        world.actors.delete("p")
    world.all_serve(*NODES, image="v2")
    if beside:
        assert world.actors.see("p") is not None


def test_a_crashing_slurmd_is_rolled_back_under_running_pods(world: World) -> None:
    if world.cluster.spec.release != "26.05":
        pytest.skip("24.11's placeholders are batch jobs: their slurmd is not replaced")
    names = {f"p{number}": node for number, node in enumerate(NODES)}
    for name, node in names.items():
        world.actors.create(name, annotations={"partition": "dynamic", "required-nodes": node})
        world.actors.bound(name)
    world.fleet.forget()
    world.write(pools(CRASHES, update={"maxUnavailable": 4}))
    eventually(lambda: len(world.fleet.starts([CRASHES])) == 2, "two Nodes try", 60)
    eventually(lambda: world.images() == dict.fromkeys(NODES, world.image), "they went back", 60)
    eventually(lambda: world.open() == set(NODES), "all are open")
    assert len(world.fleet.starts([CRASHES])) == 2
    stopped = 'slurm_extender_pool_stopped{pool="dyn"}'
    assert world.metric("slurm_extender_pool_stopped")[stopped] == 1
    assert all(world.actors.see(name) is not None for name in names)
    world.write(pools(world.image))
    eventually(lambda: not world.metric("slurm_extender_pool_stopped")[stopped], "nothing is stopped")


@pytest.mark.one_release(
    "Slurm's part, a node that is deleted, is tested on each release in tests/slurm_client"
)
def test_a_node_deleted_by_hand_registers_with_its_current_devices(world: World) -> None:
    """The node agent may find other devices after the node exists. slurmctld reads a node's devices only
    when the node is created."""

    def gres(node: str) -> str:
        return str(world.nodes().get(node, {"gres": "?"})["gres"])

    node, other = NODES[:2]
    world.write(pools(world.image, slurm={"gres": None}))
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


def test_a_roll_out_continues_under_an_adopted_pod(world: World) -> None:
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
            # The adopted Pod's job is a batch job, and would end with slurmd. So slurmd stays.
            assert world.images()[node] == world.image
        world.actors.delete("guest")
        world.all_serve(*NODES, image="v6")
    finally:
        cluster.stop("extender")
        cluster.start("extender")


@pytest.mark.one_release("Slurm's reservations are tested on each release in tests/slurm_client")
def test_a_node_with_a_future_reservation_keeps_serving_and_is_not_deleted(world: World) -> None:
    node, others = NODES[0], NODES[1:]
    with reserved(world.cluster, Reservation("course", (node,), ("root",), start="now+1hours")):
        world.write(pools(world.image, slurm={"weight": 9}))
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


@pytest.mark.one_release("Slurm's reservations are tested on each release in tests/slurm_client")
def test_a_reservation_of_all_nodes_gets_new_nodes_and_delays_no_roll_out(world: World) -> None:
    world.label(*NODES[1:])
    eventually(lambda: NODES[0] not in world.nodes(), "it has left", 60)
    others = world.nodes().keys() - {*NODES}
    maintenance = Reservation("all", ("ALL",), ("root",), start="now+1hours", flags=("MAINT",))
    with reserved(world.cluster, maintenance):
        assert {*world.reserved("all")} == {*others, *NODES[1:]}
        world.label(*NODES)
        eventually(lambda: {*world.reserved("all")} == {*others, *NODES}, "all are reserved", 30)
        world.write(pools(world.image, slurm={"weight": 11}, update={"maxUnavailable": 2}))
        eventually(lambda: {world.weights().get(each) for each in NODES} == {11}, "told anew", 60)
        eventually(lambda: {*world.reserved("all")} == {*others, *NODES}, "all are reserved", 30)


@pytest.mark.one_release("Roll-outs, tested on each release, also end slurmd Pods after their jobs")
def test_a_deleted_slurmd_pod_ends_after_its_jobs_and_is_recreated(world: World) -> None:
    node = NODES[1]
    job = world.sbatch(6, "-w", node)
    eventually(lambda: world.runs(job), "the native job runs")
    name = pod_name(node)
    world.cluster.kubectl("delete", "pod", "-n", POOLS_NAMESPACE, name, "--wait=false")
    eventually(lambda: "DRAIN" in world.states()[node], "no more jobs come")
    eventually(lambda: world.completed(job), "the job", 30)
    world.all_serve(*NODES)


@pytest.mark.timeout(180)
@pytest.mark.long
@pytest.mark.one_release(
    "Slurm's part, a node that is deleted, is tested on each release in tests/slurm_client"
)
def test_nodes_without_a_kubernetes_node_are_down_or_deleted_after_a_minute(world: World) -> None:
    """One slurmd has ended in order, and the other slurmd has crashed. The test creates both Nodes again
    at the end."""
    left, crashed = OTHERS
    cordoned = "slurm-extender pool dyn: the Node is cordoned, and slurmd has left it"
    for node in OTHERS:
        world.cluster.register(node, SIZE, "--instance-type", "slurm-extender/dyn")
        world.cluster.kubectl("delete", "node", node)
    time.sleep(10)  # long enough to count, but the slurmds answer, so the nodes stay
    for node in OTHERS:
        world.cluster.stop(f"slurmd-{node}")
        world.update_node(node, "DRAIN", cordoned)
        world.update_node(node, "UNDRAIN")  # makes slurmctld check at once whether slurmd answers
        assert "NOT_RESPONDING" in world.node(node)[0]
    world.update_node(left, "DRAIN", cordoned)
    began = time.monotonic()
    eventually(lambda: "DOWN" in world.node(crashed)[0], "the crashed one is given up", 75)
    assert time.monotonic() - began > 57
    assert world.node(crashed)[1] == "slurm-extender pool dyn: its Node is gone from Kubernetes"
    eventually(lambda: left not in world.nodes(), "the one that was left is forgotten", 10)
    for node in OTHERS:
        made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
        world.cluster.kubectl("create", "-f", "-", stdin=json.dumps(made))
    eventually(lambda: crashed not in world.nodes(), "what was the pool's is forgotten", 10)


@pytest.mark.one_release("The extender compares reasons, which are text on each release")
def test_a_drain_by_an_administrator_stays(world: World) -> None:
    node = NODES[3]
    update = (f"NodeName={node}", "State=DRAIN", "Reason=loud disk")
    world.cluster.run_slurm("scontrol", "update", *update)
    world.write(pools("v3"))
    eventually(lambda: world.images() == dict.fromkeys(NODES, "v3"), "v3", 60)
    eventually(lambda: world.open() == set(NODES[:3]), "the others are open")
    assert world.nodes()[node]["reason"].startswith("loud disk")
    world.cluster.run_slurm("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")


def test_a_node_that_is_external_in_slurm_is_left_alone(world: World) -> None:
    """The Node matches the pool's selector and has a node agent, but in Slurm the node is EXTERNAL, so
    no slurmd belongs to the node."""
    node = next(iter(world.cluster.spec.external_names), None)
    if node is None:
        pytest.skip("Slurm 24.11 has no EXTERNAL nodes")
    agent = {"type": DEVICE_PROBLEM, "status": "False", "reason": "DevicesUsable", "message": ""}
    status = json.dumps({"status": {"conditions": [agent]}})
    world.cluster.kubectl("patch", "node", node, "--subresource=status", "-p", status)
    world.cluster.kubectl("label", "node", node, "pool=yes")
    try:
        world.write(pools("v5", update={"maxUnavailable": 4}))
        world.all_serve(*NODES, image="v5")
        shown = json.loads(world.cluster.kubectl("get", "node", node, "-o", "json").stdout)
        assert SLURMD not in shown["metadata"].get("annotations", {})
        assert set(world.nodes()[node]["state"]) == {"IDLE", "EXTERNAL"}
    finally:
        world.cluster.kubectl("label", "node", node, "pool-")


@pytest.mark.one_release("kube-apiserver alone decides")
def test_an_agent_may_create_only_the_slurmd_pod_of_its_own_node(world: World) -> None:
    """If an agent could create a Pod with any name, the agent could take the name of another Node's
    slurmd Pod."""
    pods = f"/api/v1/namespaces/{POOLS_NAMESPACE}/pods"
    uses = world.cluster.kubectl("get", "configmap", TEMPLATES, "-n", POOLS_NAMESPACE, "-o", "json")
    revision, lines = next(iter(json.loads(uses.stdout)["data"].items()))
    image = next(line for line in lines.splitlines() if line.startswith("image="))
    own: dict[str, Any] = {"name": pod_name("node-1"), "labels": {REVISION: revision}}
    bare: dict[str, Any] = {"automountServiceAccountToken": False, "serviceAccountName": "default"}
    token = {"serviceAccountToken": {"path": "t"}}
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (own, bare, ""),
        ({"name": pod_name(NODES[0])}, bare, "a slurmd Pod is called slurmd- and the name of its Node"),
        (own | {"name": pull_pod_name("node-1")}, bare, ""),
        ({"name": pull_pod_name(NODES[0])}, bare, "and the Pod for its images pull-slurmd-"),
        (own, bare | {"nodeName": NODES[0]}, "the slurmd Pod of its own Node, and no other Pod"),
        (own, {}, "has no token"),
        (own, bare | {"volumes": [{"name": "t", "projected": {"sources": [token]}}]}, "has no token"),
    ]
    with (
        token_of_a_pod(world.cluster, "node-1") as mine,
        closing(Caller(world.cluster, mine)) as agent,
    ):
        for metadata, more, refused in cases:
            container = {"name": "slurmd", "image": image.removeprefix("image=")}
            spec = {"nodeName": "node-1", "containers": [container]} | more
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            answer = agent.ask("POST", f"{pods}?dryRun=All", pod)
            assert answer.status_code == (403 if refused else 201), (metadata, more, answer.text)
            assert refused in answer.text
        assert agent.ask("DELETE", f"{pods}/{pod_name(NODES[0])}?dryRun=All").status_code == 403


@pytest.mark.one_release("The leader's records are in Kubernetes")
def test_a_roll_out_completes_after_kills_of_the_leader(world: World) -> None:
    world.write(pools("v4", update={"maxUnavailable": 2}))
    for _ in range(3):
        time.sleep(1.5)
        world.cluster.kill("extender")
        world.cluster.start("extender")
    world.all_serve(*NODES, image="v4")


def weight(number: int) -> int:
    """Returns the weight of the nodes in a roll-out's template. In every second roll-out, only the image
    changes."""
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
