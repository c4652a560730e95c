"""Tests of the controller of pools. If a node changes between the controller's read and the controller's
write, the controller leaves the node alone."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from extender.node_view.slurm_nodes import SlurmNodes
from extender.node_view.view_updater import ClusterViewUpdater
from extender.pools.controller import Leadership, PoolController
from extender.pools.pool import Pool
from extender.pools.roll_out import PoolState
from kubernetes_client.errors import Rejected
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.protocol import Manifest
from service.health import Health
from slurm_client.in_memory import InMemorySlurm, partition
from slurm_client.model import JobSpec
from slurm_client.model import Node as SlurmNode
from wellknown.names import (
    DEVICE_PROBLEM,
    NODE_NAME_LABEL,
    ON_HOST,
    SLURMD,
    SLURMD_LABEL,
    SLURMD_PROBLEM,
)
from wellknown.names import POOL as POOL_LABEL
from wellknown.slurmd_pod import TEMPLATES, Assignment

POOL = Pool("gpu", {"gpu": "yes"}, data={"template": 1})
OLD = Assignment("gpu", "gpu-old", POOL.assignment.conf)


async def nothing() -> None:
    """Changes nothing between the controller's read and write."""


class Bench:
    """A Node whose slurmd Pod has an old revision of the template. The pool has drained the node, and no
    job runs on the node."""

    def __init__(self) -> None:
        self.kubernetes = InMemoryKubernetes()
        agent = {"type": DEVICE_PROBLEM, "status": "False", "reason": "DevicesUsable", "message": ""}
        metadata = {"name": "n1", "labels": {"gpu": "yes"}, "annotations": OLD.annotations()}
        self.kubernetes.put("namespaces", {"metadata": {"name": "kube-system"}})
        self.kubernetes.put(
            "nodes", {"metadata": metadata, "spec": {}, "status": {"conditions": [agent]}}
        )
        self.health = Health()
        self.slurm = InMemorySlurm([], [partition("main", [], default=True)])
        self.state, self.pool = PoolState(), POOL
        self.placeholder_cpus = 0
        self.slurm.register(
            SlurmNode("n1", frozenset(), 8, 100, instance_type="slurm-extender/gpu"), ["main"]
        )

    def is_to_be_told_anew(self) -> None:
        """Writes into the Node's annotations that slurmd has ended, and that the node in Slurm has an
        outdated configuration. The pool then deletes the node in Slurm."""
        stopped = replace(OLD, revision="", conf="other")
        self.kubernetes.edit("nodes", "n1", {"metadata": {"annotations": stopped.annotations()}})

    async def turn(self, allowed: Callable[[], Awaitable[None]]) -> Assignment | None:
        """Drains the node for a roll-out, and runs a turn of the controller, which calls `allowed`
        before a write. Returns the Node's assignment after the turn."""
        await self.slurm.drain_node("n1", "slurm-extender pool gpu: roll-out of gpu-1")
        await self.only_look(allowed)
        return Assignment.on(self.kubernetes.read("nodes", "n1")["metadata"].get("annotations") or {})

    async def only_look(self, allowed: Callable[[], Awaitable[None]] = nothing) -> None:
        """Runs a turn of the controller without draining the node first."""
        pools = await self.controller(allowed)
        await pools.turn()
        self.state = pools.states["gpu"]

    async def controller(self, allowed: Callable[[], Awaitable[None]] = nothing) -> PoolController:
        health = self.health
        cluster = ClusterViewUpdater(self.kubernetes, self.slurm, health, NODE_NAME_LABEL)
        await cluster.load()
        cpus = lambda *_: self.placeholder_cpus  # noqa: E731
        leadership = Leadership(lambda: [self.pool], "slurm-nodes", allowed, cpus, lambda _: "")
        nodes = SlurmNodes(self.slurm)
        return PoolController(self.kubernetes, self.slurm, nodes, cluster, leadership, health)

    def is_made_anew(self, **labels: str) -> None:
        """Replaces the Node by a new Node, as if the kubelet had registered the Node again."""
        metadata = {"name": "n1", "labels": labels}
        before = self.kubernetes.read("nodes", "n1")
        self.kubernetes.put("nodes", before | {"metadata": metadata})


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_node_that_is_drained_and_idle_gets_the_newest_revision(bench: Bench) -> None:
    assert await bench.turn(nothing) == POOL.assignment
    assert [each["metadata"]["name"] for each in bench.kubernetes.objects("controllerrevisions")] == [
        POOL.assignment.revision
    ]


TEMPLATE = {"spec": {"containers": [{"name": "slurmd", "image": "slurmd:1"}]}}
REAL = Pool("gpu", {"gpu": "yes"}, data={"template": TEMPLATE})


async def test_uses_of_a_revision_are_published_before_a_node_is_assigned(bench: Bench) -> None:
    bench.pool = REAL

    class Watching(InMemoryKubernetes):
        """Records whether the ConfigMap already has the revision's uses when the controller assigns the
        revision to the Node."""

        in_time: bool | None = None

        async def patch_node(self, name: str, patch: Manifest) -> None:
            data = (await self.read_config_map("slurm-nodes", TEMPLATES) or {}).get("data") or {}
            self.in_time = REAL.assignment.revision in data
            await super().patch_node(name, patch)

    node = bench.kubernetes.read("nodes", "n1")
    bench.kubernetes = Watching()
    bench.kubernetes.put("nodes", node)
    bench.kubernetes.put("namespaces", {"metadata": {"name": "kube-system"}})
    assert await bench.turn(nothing) == REAL.assignment
    assert bench.kubernetes.in_time


async def test_new_leader_publishes_the_uses_of_revisions_that_exist(bench: Bench) -> None:
    """The earlier leader may have been a release of the extender that wrote no ConfigMap, or other
    content."""
    labels = {POOL_LABEL: "gpu"}
    for number, known in enumerate((False, True)):
        metadata = {"name": f"gpu-{number}", "namespace": "slurm-nodes", "labels": labels}
        revision = {"metadata": metadata, "revision": 1, "data": {"template": TEMPLATE}}
        await bench.kubernetes.create_revision("slurm-nodes", revision)
        assert (await bench.kubernetes.read_config_map("slurm-nodes", TEMPLATES) is not None) == known
        await bench.only_look()
        published = await bench.kubernetes.read_config_map("slurm-nodes", TEMPLATES)
        assert published is not None
        assert published["data"].keys() >= {f"gpu-{each}" for each in range(number + 1)}


async def test_node_undrained_by_a_person_in_between_keeps_its_slurmd(bench: Bench) -> None:
    async def allowed() -> None:
        await bench.slurm.undrain_node("n1")

    assert await bench.turn(allowed) == OLD


async def test_node_goes_back_to_the_old_revision_if_its_pod_is_rejected(bench: Bench) -> None:
    """The first Pod of the new template would replace slurmd under a placeholder, but kube-apiserver
    rejects the Pod."""
    await bench.slurm.allocate(JobSpec("p", cpus=2, memory_mb=10, partition="main"), 7)
    bench.placeholder_cpus = 2
    assert await bench.turn(nothing) == replace(POOL.assignment, before="gpu-old")
    problem = {"type": SLURMD_PROBLEM, "status": "True", "message": "kube-apiserver does not take it"}
    bench.kubernetes.edit("nodes", "n1", {"status": {"conditions": [problem]}})
    # The extender may not have the right to read the ConfigMap yet. Nodes with placeholders go back
    # without waiting for this right.
    bench.kubernetes.outage(Rejected(403, "no right"), "read_config_map")
    with capture_logs() as logged:
        went_back = await bench.turn(nothing)
    why = "kube-apiserver does not take it"
    assert went_back == replace(OLD, failed=POOL.assignment.revision, why=why)
    assert "ConfigMap slurmd-templates: no right" in str(bench.health.problems())
    (line,) = [each for each in logged if each["event"] == "rolled back"]
    assert (line["node"], line["revision"], line["error"]) == ("n1", POOL.assignment.revision, why)


async def test_node_assigned_to_another_pool_in_between_is_left_alone(bench: Bench) -> None:
    other = Assignment("cpu", "cpu-1")

    async def allowed() -> None:
        bench.kubernetes.edit("nodes", "n1", {"metadata": {"annotations": other.annotations()}})

    assert await bench.turn(allowed) == other
    assert SLURMD in bench.kubernetes.read("nodes", "n1")["metadata"]["annotations"]


@pytest.mark.parametrize("value", ["Host", "pod", ""])
async def test_unknown_label_is_reported_and_changes_nothing(bench: Bench, value: str) -> None:
    bench.kubernetes.edit("nodes", "n1", {"metadata": {"labels": {SLURMD_LABEL: value}}})
    assert await bench.turn(nothing) == POOL.assignment
    words = f'Node n1: the label slurm-extender.io/slurmd may only have the value "host", not "{value}"'
    assert bench.health.problems() == {"pools": words}


async def test_node_with_the_host_slurmd_label_loses_its_slurmd_pod(bench: Bench) -> None:
    bench.kubernetes.edit("nodes", "n1", {"metadata": {"labels": {SLURMD_LABEL: ON_HOST}}})
    assert await bench.turn(nothing) == Assignment("gpu", "", POOL.assignment.conf)
    assert not bench.health.problems()


async def test_node_with_a_changed_configuration_is_deleted_in_slurm(bench: Bench) -> None:
    bench.is_to_be_told_anew()
    await bench.turn(nothing)
    assert await bench.slurm.node("n1") is None


async def test_reserved_node_comes_back_with_its_old_configuration(bench: Bench) -> None:
    bench.is_to_be_told_anew()
    bench.slurm.reserve("course", ["n1"], [], begins_in_s=3600)
    assert await bench.turn(nothing) == replace(POOL.assignment, conf="other")
    assert await bench.slurm.node("n1") is not None
    assert bench.state.reserved == 1


async def test_the_log_says_once_that_a_node_waits_for_a_reservation(bench: Bench) -> None:
    bench.is_to_be_told_anew()
    bench.slurm.reserve("course", ["n1"], [], begins_in_s=3600)
    pools = await bench.controller()
    with capture_logs() as logged:
        for _ in range(3):
            await pools.turn()
    (line,) = [each for each in logged if each["event"].startswith("waits")]
    assert (line["node"], line["reservations"]) == ("n1", ["course"])


async def test_node_reserved_at_the_last_moment_is_not_deleted_in_slurm(bench: Bench) -> None:
    bench.is_to_be_told_anew()

    async def allowed() -> None:
        bench.slurm.reserve("course", ["n1"], [], begins_in_s=3600)

    await bench.turn(allowed)
    assert await bench.slurm.node("n1") is not None
    assert await bench.slurm.reservations()


async def test_reservation_of_all_nodes_gets_a_newly_registered_node(bench: Bench) -> None:
    bench.slurm.reserve("maintenance", [], [], begins_in_s=3600, flags=["ALL_NODES", "MAINT"])
    bench.slurm.register(SlurmNode("n2", frozenset(), 8, 100, instance_type="slurm-extender/gpu"))
    (before,) = await bench.slurm.reservations()
    assert before.nodes == ("n1",)
    await bench.only_look()
    (after,) = await bench.slurm.reservations()
    assert after.nodes == ("n1", "n2")


async def test_recreated_node_that_does_not_match_is_deleted_in_slurm(bench: Bench) -> None:
    bench.is_made_anew()
    bench.slurm.fail_node("n1")
    await bench.only_look()
    (left,) = await bench.slurm.nodes()
    assert left.reason == "slurm-extender pool gpu: the Node leaves the pool"
    await bench.only_look()
    assert await bench.slurm.nodes() == ()
    assert SLURMD not in (bench.kubernetes.read("nodes", "n1")["metadata"].get("annotations") or {})


async def test_recreated_node_leaves_a_removed_pool(bench: Bench) -> None:
    bench.is_made_anew()
    bench.slurm.register(SlurmNode("n2", frozenset(), 8, 100, instance_type="slurm-extender/old"))
    bench.kubernetes.put("nodes", {"metadata": {"name": "n2"}, "spec": {}, "status": {}})
    bench.slurm.fail_node("n2")
    for _ in range(2):
        await bench.only_look()
    assert [each.name for each in await bench.slurm.nodes()] == ["n1"]


async def test_recreated_node_that_matches_comes_back(bench: Bench) -> None:
    bench.is_made_anew(gpu="yes")
    bench.slurm.fail_node("n1")
    for _ in range(2):
        await bench.only_look()
    metadata = bench.kubernetes.read("nodes", "n1")["metadata"]
    assert Assignment.on(metadata["annotations"]) == replace(POOL.assignment, conf="")


@pytest.mark.parametrize(("label", "down"), [("host", True), (None, False)])
async def test_recreated_node_is_left_to_its_slurmd(bench: Bench, label: str | None, down: bool) -> None:
    """The pool leaves the recreated Node alone if slurmd of the host answers, or if a label announces
    slurmd of the host."""
    bench.is_made_anew(**({SLURMD_LABEL: label} if label else {}))
    if down:
        bench.slurm.fail_node("n1")
    before = await bench.slurm.nodes()
    await bench.only_look()
    assert await bench.slurm.nodes() == before
