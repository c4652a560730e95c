"""Tests of nodes in Slurm whose Node no longer exists in Kubernetes. If slurmd does not answer either,
the extender sets the node DOWN and later deletes the node in Slurm."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from extender.node_sync.drains import too_many
from extender.node_view.view import ClusterView
from extender.pools.node_remover import PART, NodeRemover
from extender.pools.removal import Removal, believed, decide, marked
from service.health import Health
from slurm_client.in_memory import InMemorySlurm, partition
from slurm_client.model import Node as SlurmNode
from slurm_client.reservation import Reservation
from tests.builders import kube_node

WORDS = "slurm-extender pool gpu: its Node is gone from Kubernetes"
CORDONED = "slurm-extender pool gpu: the Node is cordoned, and slurmd has left it"
LEFT = ("IDLE", "DRAIN", "NOT_RESPONDING")
"""States of a node after a pool has drained the node and ended its slurmd."""
DELETED = Removal("n1")


def node(
    *states: str, reason: str = "", cpus_allocated: int = 0, mark: str = "slurm-extender/gpu"
) -> SlurmNode:
    return SlurmNode(
        "n1", frozenset({*states, "DYNAMIC_NORM"}), 8, 100,
        reason=reason, cpus_allocated=cpus_allocated, instance_type=mark,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("of", "age", "orders"),
    [
        (node("IDLE"), 1e6, []),  # slurmd still answers
        (node("IDLE", "NOT_RESPONDING"), 59, []),
        (node("IDLE", "NOT_RESPONDING"), 61, [Removal("n1", WORDS)]),
        (node("DOWN", "NOT_RESPONDING", reason="Not responding"), 61, [Removal("n1", WORDS)]),
        (node("DOWN", reason=WORDS), 61, []),
        (node("DOWN", reason=WORDS), 601, [Removal("n1")]),
        (node("DOWN", reason=WORDS, cpus_allocated=1), 601, []),
        (node("DOWN", "COMPLETING", reason=WORDS), 601, []),
        (node(*LEFT, reason=CORDONED), 59, []),
        (node(*LEFT, reason=CORDONED), 61, [Removal("n1")]),
        (node(*LEFT, reason="slurm-extender pool gpu: the Node leaves the pool"), 61, [DELETED]),
        (node("DOWN", "DRAIN", reason=f"{CORDONED} : Not responding"), 61, [DELETED]),
        (node("IDLE", "DRAIN", reason=CORDONED), 1e6, []),  # slurmd still answers
        (node(*LEFT, reason=CORDONED, cpus_allocated=1), 61, [Removal("n1", WORDS)]),
        (node(*LEFT, reason="loud disk"), 61, [Removal("n1", WORDS)]),
    ],
)
def test_silent_node_is_set_down_then_deleted(of: SlurmNode, age: float, orders: list[Removal]) -> None:
    assert decide([of], {"n1": 100.0}, 100.0 + age, {}) == orders


def test_reserved_node_is_not_deleted_in_slurm() -> None:
    gone, since = node("DOWN", reason=WORDS), {"n1": 0.0}
    named = Reservation("course", ("n1",), 2000, 3000)
    assert decide([gone], since, 1000.0, {"n1": (named,)}) == []
    assert decide([node("DOWN", "RESERVED", reason=WORDS)], since, 1000.0, {}) == []
    left = node(*LEFT, reason=CORDONED)
    assert decide([left], since, 1000.0, {"n1": (named,)}) == []
    of_all = replace(named, flags=frozenset({"ALL_NODES"}))
    assert decide([gone], since, 1000.0, {"n1": (of_all,)}) == [Removal("n1")]


async def test_node_reserved_at_the_last_moment_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, health = failed()
    await slurm.down_node("n1", WORDS)
    monkeypatch.setattr("extender.pools.removal._DELETE_S", 0.0)

    async def meanwhile() -> None:
        slurm.reserve("course", ["n1"], [], begins_in_s=3600)

    await gone_nodes(slurm, health, "n2", allowed=meanwhile).look(await slurm.nodes(), {})
    assert await slurm.nodes()
    assert await slurm.reservations()


def test_only_nodes_registered_by_slurmd_pods_are_considered() -> None:
    assert marked([node("IDLE")])
    assert not marked([node("IDLE", mark="m5.large")])
    assert not marked([SlurmNode("n1", frozenset({"IDLE"}), 8, 100, instance_type="slurm-extender/gpu")])


def test_no_node_is_removed_if_too_many_are_gone() -> None:
    assert too_many(6, 17)
    assert not too_many(6, 18)
    assert not too_many(5, 5)


def test_nodes_drained_before_they_left_do_not_count_as_gone() -> None:
    """An autoscaler that shrinks a pool cordons Nodes, waits until their workloads have ended, and
    deletes the Nodes."""
    left = [node(*LEFT, reason=CORDONED)] * 16
    crashed = [node("IDLE", "NOT_RESPONDING")] * 6
    assert believed(left, 16) == left
    assert believed([*left, *crashed], 16 + 17) == left
    assert believed([*left, *crashed], 16 + 18) == [*left, *crashed]
    busy = [replace(each, memory_allocated_mb=1) for each in left]  # a suspended job holds memory
    assert believed(busy, 32) == []


class Cluster:
    """Stands in for the object that holds the cluster view. The view has these Nodes."""

    def __init__(self, *nodes: str) -> None:
        self.view = ClusterView(nodes={name: kube_node(name) for name in nodes})


async def allowed() -> None:
    """Confirms that this replica leads."""


Allowed = Callable[[], Awaitable[None]]


def gone_nodes(
    slurm: InMemorySlurm, health: Health, *nodes: str, allowed: Allowed = allowed
) -> NodeRemover:
    return NodeRemover(slurm, Cluster(*nodes), health, allowed)  # type: ignore[arg-type]


def empty() -> tuple[InMemorySlurm, Health]:
    return InMemorySlurm([], [partition("main", [], default=True)]), Health()


def failed() -> tuple[InMemorySlurm, Health]:
    """Returns a Slurm whose only node does not answer."""
    slurm, health = empty()
    slurm.register(node())
    slurm.fail_node("n1")
    return slurm, health


async def test_gone_node_is_set_down_and_deleted_in_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, health = failed()
    gone = gone_nodes(slurm, health, "n2")
    monkeypatch.setattr("extender.pools.removal._DOWN_S", 0.0)
    await gone.look(await slurm.nodes(), {})
    (found,) = await slurm.nodes()
    assert found.reason == WORDS
    monkeypatch.setattr("extender.pools.removal._DELETE_S", 0.0)
    await gone.look(await slurm.nodes(), {})
    assert await slurm.nodes() == ()


async def test_changed_node_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, health = failed()
    monkeypatch.setattr("extender.pools.removal._DOWN_S", 0.0)
    read = await slurm.nodes()

    async def meanwhile() -> None:
        slurm.register(node())  # slurmd is back

    await gone_nodes(slurm, health, "n2", allowed=meanwhile).look(read, {})
    (found,) = await slurm.nodes()
    assert "DOWN" not in found.states


async def test_node_whose_kubernetes_node_is_back_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, health = failed()
    monkeypatch.setattr("extender.pools.removal._DOWN_S", 0.0)
    await gone_nodes(slurm, health, "n1").look(await slurm.nodes(), {})
    (found,) = await slurm.nodes()
    assert found.reason == "Not responding"


async def test_many_nodes_gone_at_once_are_reported() -> None:
    slurm, health = empty()
    for number in range(7):
        slurm.register(SlurmNode(f"n{number}", frozenset(), 8, 100, instance_type="slurm-extender/gpu"))
    await gone_nodes(slurm, health).look(await slurm.nodes(), {})
    assert "7 of 7 nodes of pools" in health.problems()[PART]


async def test_nodes_drained_by_an_autoscaler_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, health = empty()
    names = [f"n{number}" for number in range(16)]
    for name in names:
        slurm.register(replace(node(), name=name))
        slurm.fail_node(name)
        await slurm.drain_node(name, CORDONED)
    monkeypatch.setattr("extender.pools.removal._DOWN_S", 0.0)
    await gone_nodes(slurm, health).look(await slurm.nodes(), {})
    assert await slurm.nodes() == ()
    assert not health.problems()


async def test_waiting_time_starts_when_slurmd_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Node may already be gone for hours while slurmd and the node's jobs still run. So the time
    counts from the last answer of slurmd."""
    slurm, health = empty()
    slurm.register(node())
    gone = gone_nodes(slurm, health, "n2")
    monkeypatch.setattr("extender.pools.removal._DOWN_S", 0.05)
    await gone.look(await slurm.nodes(), {})
    await asyncio.sleep(0.06)
    slurm.fail_node("n1")
    await gone.look(await slurm.nodes(), {})
    (found,) = await slurm.nodes()
    assert found.reason == "Not responding"
    await asyncio.sleep(0.06)
    await gone.look(await slurm.nodes(), {})
    (found,) = await slurm.nodes()
    assert found.reason == WORDS
