"""A Pod keeps the job and the Node while its volume is created, which may take minutes."""

from __future__ import annotations

from extender.record.config import PlacementConfig
from extender.record.states import State
from tests.placement.ledger_world import World

TIMEOUT_S = int(PlacementConfig().volume_deadline)


def allocated() -> tuple[World, str]:
    world = World(PlacementConfig())
    uid = world.settled_pod()
    assert world.state_of(uid) is State.ALLOCATED
    return world, uid


def live_on(world: World, seconds: int, uid: str) -> None:
    """Lets time pass. kube-scheduler binds the Pod as soon as possible."""
    for _ in range(seconds):
        world.settle()
        world.bind(uid)
        world.poll_alone()
        world.pass_time(1.0)
    world.settle()


def test_allocation_is_kept_until_the_volume_exists() -> None:
    world, uid = allocated()
    world.make_volume(uid, "n1")
    live_on(world, TIMEOUT_S - 40, uid)
    world.make_volume(uid, None)
    live_on(world, 2, uid)
    assert (world.pods[uid].life.node, world.started[uid]) == ("n1", 1)
    assert world.state_of(uid) is State.BOUND


def test_missing_volume_holds_the_node_until_the_kube_scheduler_timeout() -> None:
    world, uid = allocated()
    world.make_volume(uid, "n1")
    live_on(world, TIMEOUT_S - 2, uid)
    assert world.pods[uid].scheduling.attempt == 1
    live_on(world, 4, uid)
    assert world.pods[uid].scheduling.attempt == 2


def test_volume_on_another_node_does_not_prolong_the_allocation() -> None:
    world, uid = allocated()
    world.make_volume(uid, "n2")
    live_on(world, int(world.rules.unbound_deadline) + 2, uid)
    assert world.pods[uid].scheduling.attempt == 2


def test_pod_has_the_usual_time_to_be_bound_after_its_volume_exists() -> None:
    world, uid = allocated()
    world.make_volume(uid, "n1")
    live_on(world, 120, uid)
    world.unbindable.add(uid)
    world.make_volume(uid, None)
    live_on(world, int(world.rules.unbound_deadline) + 2, uid)
    assert world.pods[uid].scheduling.attempt == 2
