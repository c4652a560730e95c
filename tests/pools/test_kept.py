"""Tests of Nodes that stay in a pool although their machines are off, or although the Nodes no longer
match the pool."""

from dataclasses import replace

import pytest

from extender.pools.pool import Pool, Update
from tests.pools.world import PERSON, POOL, World, served


def updating(most: int | str) -> Pool:
    return replace(POOL, update=Update(max_unavailable=most))


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize("most", ["50%", 1])
def test_no_roll_out_waits_for_machines_that_are_off(most: str | int, *, drained: bool) -> None:
    world, _ = served(12, updating(most))
    off = [world.machines[name] for name in ("n0000", "n0001", "n0011")]
    for machine in off:
        machine.off = machine.silent = True
        machine.states = {"DOWN", "NOT_RESPONDING"} | ({"DRAIN"} if drained else set())
        machine.reason = PERSON if drained else "Not responding"
    world.change(template=2)
    world.settle(150)
    assert len(world.serving) == 9
    for machine in off:
        machine.off = machine.silent = False
        machine.made_at = world.now
    world.settle(50)
    assert {each.running for each in off} == {world.pool.assignment}


def test_a_new_pool_begins_with_machines_that_are_on() -> None:
    world = World(6)
    for name in ("n0000", "n0001"):
        world.machines[name].off = True
    world.settle()
    assert len(world.serving) == 4


def test_nodes_stay_in_the_pool_if_all_lose_their_labels() -> None:
    """The labels disappear in the middle of a roll-out."""
    world, _ = served(10, updating("30%"))
    world.change(template=2)
    while sum("DRAIN" in each.states for each in world.machines.values()) < 3:
        world.step()
    for machine in world.machines.values():
        machine.matches = False
    world.settle()
    assert world.state.kept == 10
    assert not any(each.states for each in world.machines.values())
    cordoned, asleep = world.machines["n0003"], world.machines["n0004"]
    cordoned.cordoned, asleep.states = True, {"POWERED_DOWN"}
    world.settle()
    there = {name for name, each in world.machines.items() if each.running}
    assert there == {*world.machines} - {"n0003", "n0004"}
    cordoned.cordoned, asleep.states = False, {"POWERING_UP"}
    world.settle()
    assert cordoned.running
    assert asleep.running
    assert not cordoned.states | asleep.states
    assert world.lost_jobs == 0


@pytest.mark.parametrize(("nodes", "leave", "stay"), [(5, 5, 0), (6, 6, 6), (18, 6, 12), (17, 6, 17)])
def test_no_node_leaves_if_too_many_stop_matching(nodes: int, leave: int, stay: int) -> None:
    """Many Nodes stop matching at once, for example after a mistake in the selector."""
    world = World(nodes)
    world.settle()
    for machine in list(world.machines.values())[:leave]:
        machine.matches = False
    world.settle()
    assert sum(each.in_slurm for each in world.machines.values()) == stay
    assert world.state.kept == (leave if stay == nodes else 0)
    if stay == nodes:
        assert world.serving == set(world.machines)
        assert f"{leave} of its Nodes no longer match the pool" in world.state.keeps
        world.pool = replace(world.pool, replicas=0)
        world.settle()
        assert not any(each.in_slurm for each in world.machines.values())
        assert not world.state.keeps


def test_pool_removed_from_the_file_keeps_its_nodes() -> None:
    world, _ = served(8)
    for machine in world.machines.values():
        machine.matches = False
    world.pool = replace(POOL, replicas=0, in_file=False)
    world.settle()
    assert world.serving == set(world.machines)
    assert "8 Nodes are in a pool that the file does not define" in world.state.keeps
