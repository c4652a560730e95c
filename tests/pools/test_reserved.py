"""Tests of Slurm's reservations. A pool does not delete a node in Slurm if a reservation would lose the
node. All other changes of the pool ignore reservations."""

from dataclasses import replace

import pytest

from extender.pools.member import Member
from extender.pools.pool import Pool
from extender.pools.reserved import by_node, lacking
from slurm_client.model import Node
from slurm_client.reservation import Reservation
from tests.pools.test_roll_out import wide
from tests.pools.world import POOL, World, served


def told_anew(world: World) -> None:
    world.change(template=2, slurm={"weight": 3})


def member(*states: str, reservations: tuple[Reservation, ...] = ()) -> Member:
    node = Node("n1", frozenset(states), 8, 100)
    return Member("n1", "n1", slurm=node, reservations=reservations, now=1000.0)


def reservation(start: int, *flags: str) -> Reservation:
    return Reservation("r", ("n1",), start, start + 100, frozenset(flags))


def test_ended_reservations_of_a_node_are_left_out() -> None:
    over, daily = reservation(900), reservation(900, "DAILY")
    both = Reservation("both", ("n1", "n2"), 2000, None)
    assert by_node([over, daily, both], 1000.0) == {"n1": (daily, both), "n2": (both,)}


@pytest.mark.parametrize(
    ("of", "which"),
    [
        (Reservation("r", ("n1",)), None),
        (Reservation("r", ("n1", "n2", "n3"), flags=frozenset({"ALL_NODES"})), None),
        (Reservation("r", ("n1",), flags=frozenset({"ALL_NODES"})), "n2"),
        (Reservation("r", ("n1", "n2"), flags=frozenset({"PART_NODES"}), partition="gpu"), "n3"),
        (Reservation("r", ("n3",), flags=frozenset({"PART_NODES"}), partition="gpu"), None),
        (Reservation("r", (), flags=frozenset({"PART_NODES"})), None),
    ],
)
def test_node_that_a_reservation_lacks_is_found(of: Reservation, which: str | None) -> None:
    nodes = [Node(name, frozenset(), 8, 100) for name in ("n1", "n2")]
    nodes.append(Node("n3", frozenset(), 8, 100, partitions=("gpu",)))
    assert lacking([of], nodes) == which


@pytest.mark.parametrize(
    ("of", "reserved", "later"),
    [
        (member("IDLE"), False, False),
        (member("IDLE", "RESERVED"), True, False),
        (member("IDLE", "RESERVED", reservations=(reservation(950),)), True, False),
        (member("IDLE", reservations=(reservation(950),)), True, False),  # has just started
        (member("IDLE", reservations=(reservation(2000),)), True, True),
        (member("IDLE", "RESERVED", reservations=(reservation(950, "WEEKLY"),)), True, True),
        (member("IDLE", reservations=(reservation(2000, "ALL_NODES"),)), False, False),
        (member("IDLE", reservations=(reservation(2000, "PART_NODES", "DAILY"),)), False, False),
        (
            member("IDLE", reservations=(reservation(2000, "ALL_NODES"), reservation(2000, "MAINT"))),
            True,
            True,
        ),
    ],
)
def test_reservations_prevent_the_deletion_of_nodes(of: Member, reserved: bool, later: bool) -> None:
    assert (of.reserved, of.reserved_later) == (reserved, later)


def test_node_gets_its_new_configuration_after_its_reservation() -> None:
    world, machine = served(3)
    world.reserve(machine, begins_in=500, lasts=300)
    told_anew(world)
    for _ in range(75):
        world.step()
        assert "DRAIN" not in machine.states
        assert machine.running
    assert world.serving == {"n0001", "n0002"}
    assert world.state.reserved == 1
    assert machine.states == {"RESERVED"}
    world.settle(20)
    assert world.serving == {"n0000", "n0001", "n0002"}
    assert world.state.reserved == 0


def test_node_drained_for_a_change_takes_jobs_again_if_reserved() -> None:
    world, machine = served()
    world.start_job(machine)
    machine.jobs = 8
    machine.states, machine.reason = {"DRAIN"}, "slurm-extender pool gpu: roll-out of gpu-1"
    told_anew(world)
    world.reserve(machine, begins_in=500, lasts=300)
    world.settle(2)
    assert not machine.states


def test_another_image_waits_for_no_reservation() -> None:
    world, machine = served()
    world.reserve(machine, begins_in=5000, lasts=300)
    world.change(template=2)
    world.settle()
    assert world.serving == {"n0000"}
    assert world.state.reserved == 0


def test_a_reservation_of_all_nodes_is_no_reason_to_wait() -> None:
    world, machine = served()
    world.reserve(machine, "ALL_NODES", begins_in=5000, lasts=300)
    told_anew(world)
    world.settle()
    assert world.serving == {"n0000"}


def test_recurring_reservation_delays_a_change_until_a_person_ends_it() -> None:
    world, machine = served()
    world.reserve(machine, "DAILY", begins_in=100, lasts=100)
    told_anew(world)
    world.settle(300)
    assert not world.serving
    assert machine.running
    machine.reservations, machine.states = [], set()
    world.settle()
    assert world.serving == {"n0000"}


def test_a_node_that_leaves_serves_until_its_reservation_is_over() -> None:
    world, machine = served(2)
    world.reserve(machine, begins_in=500, lasts=300)
    machine.matches = False
    world.settle(70)
    assert machine.running
    assert machine.states == {"RESERVED"}
    assert world.state.reserved == 1
    world.settle(30)
    assert not machine.in_slurm
    assert world.member(machine).pod is None
    assert world.state.reserved == 0


def test_pool_that_becomes_smaller_keeps_its_reserved_nodes() -> None:
    world, _ = served(4)
    last = world.machines["n0003"]
    world.reserve(last, begins_in=50_000, lasts=300)
    world.pool = replace(POOL, replicas=2)
    world.settle()
    assert world.serving == {"n0000", "n0003"}
    world.pool = replace(POOL, replicas=0)
    world.settle()
    assert world.serving == {"n0003"}


def test_removed_pool_keeps_its_reserved_nodes() -> None:
    world, machine = served(2)
    revision = machine.assigned
    world.reserve(machine, begins_in=50_000, lasts=300)
    world.pool = Pool("gpu", {}, 0, in_file=False)
    for other in world.machines.values():
        other.matches = False
    world.settle()
    assert machine.running == revision
    assert not machine.states
    assert not world.machines["n0001"].in_slurm


def test_node_reserved_while_it_leaves_comes_back() -> None:
    world, machine = served()
    machine.jobs, machine.matches = 8, False
    world.settle(3)
    assert "DRAIN" in machine.states
    world.reserve(machine, begins_in=500, lasts=300)
    world.settle(5)
    assert not machine.states
    machine.jobs, machine.reservations = 0, []
    world.step()
    world.step()
    assert machine.assigned
    assert not machine.assigned.revision
    world.reserve(machine, begins_in=500, lasts=300)
    world.settle(5)
    assert machine.running
    assert not machine.states


def test_cordon_ends_slurmd_on_a_reserved_node_that_leaves() -> None:
    world, machine = served()
    world.reserve(machine, begins_in=50_000, lasts=300)
    machine.matches, machine.cordoned = False, True
    world.settle()
    assert machine.running is None
    assert machine.in_slurm


def test_node_that_leaves_in_a_maintenance_is_deleted_in_slurm_later() -> None:
    world, machine = served()
    world.reserve(machine, "MAINT", begins_in=0, lasts=500)
    world.step()
    machine.matches = False
    world.settle(20)
    assert machine.running is None
    assert machine.in_slurm
    world.settle(50)
    assert not machine.in_slurm


def test_recurring_maintenance_does_not_end_slurmd() -> None:
    world, machine = served(1, wide(in_maintenance=True))
    world.reserve(machine, "MAINT", "WEEKLY", begins_in=0, lasts=200)
    told_anew(world)
    for _ in range(100):
        world.step()
        assert machine.running
    assert world.state.reserved == 1


def test_node_reserved_again_in_its_maintenance_comes_back_unchanged() -> None:
    world, machine = served(1, wide(in_maintenance=True))
    told = machine.told
    world.reserve(machine, "MAINT", begins_in=0, lasts=200)
    told_anew(world)
    world.settle(10)
    assert world.member(machine).pod is None
    world.reserve(machine, begins_in=5000, lasts=300)
    world.settle()
    assert machine.running is not None
    assert machine.running.conf == told
    assert not machine.states


def test_removed_pool_ends_the_drain_of_a_node_that_becomes_reserved() -> None:
    world, machine = served()
    machine.jobs = 8
    world.pool = Pool("gpu", {}, 0, in_file=False)
    machine.matches = False
    world.settle(3)
    assert machine.states == {"DRAIN"}
    world.reserve(machine, begins_in=5000, lasts=300)
    world.settle(3)
    assert not machine.states


def test_slurmd_stays_on_a_reserved_node_that_a_pool_set_down() -> None:
    world, machine = served()
    world.reserve(machine, begins_in=5000, lasts=300)
    machine.states, machine.silent = {"DOWN"}, True
    machine.reason = "slurm-extender pool gpu: its Node is gone from Kubernetes"
    told_anew(world)
    for _ in range(10):
        world.step()
        assert machine.running
