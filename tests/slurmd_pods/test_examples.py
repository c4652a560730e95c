"""Tests of the examples in docs/tasks/pools.md: the page's commands print the output that the page
shows. Some tests also check effects that the page does not show."""

from __future__ import annotations

import json
import time

import pytest

from deploy.local.chart import POOLS_NAMESPACE
from tests.eventually import eventually, eventually_not
from tests.slurmd_pods.evidence import Evidence
from tests.slurmd_pods.fleet import CRASHES
from tests.slurmd_pods.page import examples
from tests.slurmd_pods.typist import follow
from tests.slurmd_pods.world import NODES, World
from wellknown.names import POOL, REVISION
from wellknown.slurmd_pod import pod_name

pytestmark = pytest.mark.real


def test_1_all_nodes_with_a_label(world: World) -> None:
    world.label()
    eventually_not(world.states, "no node is left", 60)
    follow(world, 1)
    node = world.nodes()[NODES[0]]
    assert node["instance_type"] == "slurm-extender/dyn"
    assert set(node["features"]) == {"dynamic"}
    shown = world.cluster.kubectl("get", "pod", "-n", POOLS_NAMESPACE, pod_name(NODES[0]), "-o", "json")
    labels = json.loads(shown.stdout)["metadata"]["labels"]
    assert labels[POOL] == "dyn"
    revisions = world.cluster.kubectl(
        "get", "controllerrevisions", "-n", POOLS_NAMESPACE, "-o", "name"
    ).stdout
    assert labels[REVISION] in revisions
    assert world.images().keys() == set(NODES)


def test_2_a_native_job_beside_a_pod(world: World) -> None:
    follow(world, 2)
    (pod,) = world.actors.pods().values()
    assert pod["spec"]["nodeName"] == NODES[0]


def test_3_another_image(world: World) -> None:
    follow(world, 3)
    eventually(lambda: world.open() == set(NODES), "all are open")


def test_4_another_feature(world: World) -> None:
    follow(world, 4)


def test_5_a_template_that_crashes(world: World, evidence: Evidence) -> None:
    """The metric and the log report the stopped roll-out, and only two Nodes get the template."""
    world.fleet.forget()
    stopped = 'slurm_extender_pool_stopped{pool="dyn"}'

    def look(command: str) -> None:
        if "%E" in command:
            eventually(lambda: world.metric("slurm_extender_pool_stopped").get(stopped) == 1, stopped)
            assert "fail; on dynamic-" in world.actors.problem("roll-outs")
            time.sleep(3)  # if the roll-out did not stop, another Node would get the template

    follow(world, 5, before=look)
    tried = [node for node, made in world.fleet.seen.made.items() if CRASHES in dict(made)]
    evidence.crash_loop_stopped_after.append(len(tried))
    assert len(tried) == 2
    assert world.metric("slurm_extender_pool_stopped")[stopped] == 0


def test_6_kubectl_drain(world: World) -> None:
    """kube-apiserver refuses to evict the slurmd Pod until the job has ended."""
    path = (
        f"{world.cluster.api_server_url}/api/v1/namespaces/{POOLS_NAMESPACE}/pods/{pod_name(NODES[0])}"
    )
    metadata = {"name": pod_name(NODES[0]), "namespace": POOLS_NAMESPACE}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    refused: list[int] = []

    def evict(command: str) -> None:
        if "kubectl drain" in command:
            answer = world.actors.api.post(f"{path}/eviction", json=eviction)
            refused.append(answer.status_code)

    follow(world, 6, before=evict)
    assert refused == [429]


def test_7_fewer_nodes(world: World) -> None:
    follow(world, 7)
    world.all_serve(NODES[0], NODES[3])
    world.label()
    eventually_not(world.states, "no node is left", 60)
    eventually_not(world.images, "no slurmd Pod is left")


def test_8_power_saving(world: World, evidence: Evidence) -> None:
    world.fleet.forget()
    typed = follow(world, 8)
    ended = time.monotonic()
    (began,) = (when for command, when in typed.items() if command.startswith("srun"))
    ((_, started),) = world.fleet.seen.made[NODES[2]]
    evidence.resume_to_first_line_s.append(round(ended - began, 1))
    evidence.resume_to_slurmd_s.append(round(started - began, 1))
    world.all_serve(*NODES)
    time.sleep(3)  # long enough for a second boot, which would take the node down
    assert NODES[2] in world.open()


def test_9_slurmd_on_the_host(world: World) -> None:
    def look(command: str) -> None:
        if "stop slurmd" in command:
            time.sleep(5)  # enough time for the pool to change the node
            node = world.nodes()[NODES[3]]
            assert not node["instance_type"]
            assert NODES[3] in world.open()
            assert world.images().keys() == set(NODES[:3])

    follow(world, 9, before=look)
    world.all_serve(*NODES)


def test_10_in_maintenance_only(world: World) -> None:
    follow(world, 10)


def test_each_example_has_its_test() -> None:
    tested = {name.split("_")[1] for name in globals() if name.startswith("test_")} - {"each"}
    assert {str(number) for number in examples()} == tested
