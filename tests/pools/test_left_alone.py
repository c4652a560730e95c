"""What pools leave alone: nodes of others, drains of persons, and reservations."""

from dataclasses import replace

import pytest

from tests.pools.test_roll_out import wide
from tests.pools.world import PERSON, POOL, World, served
from wellknown.names import ON_HOST


def test_a_persons_drain_is_never_taken_back_and_its_idle_node_is_replaced() -> None:
    world, _ = served(3)
    machine = world.machines["n0001"]
    machine.states, machine.reason = {"DRAIN"}, PERSON
    world.change(template=2)
    world.settle()
    assert machine.running
    assert machine.running.revision == world.pool.assignment.revision
    assert (machine.states, machine.reason) == ({"DRAIN"}, PERSON)
    assert len(world.serving) == 3


@pytest.mark.parametrize("state", ["DRAIN", "DOWN"])
def test_configuration_stays_while_a_person_keeps_the_node_out(state: str) -> None:
    """Slurm would forget that with the node, and the new one take jobs."""
    world, machine = served()
    machine.states, machine.reason = {state}, PERSON
    world.change(template=2, slurm={"weight": 3})
    world.settle()
    assert (machine.states, machine.reason) == ({state}, PERSON)
    assert machine.running is not None
    # A new slurmd that registers would end what a person has set DOWN (ReturnToService=2).
    assert (machine.running.revision == world.pool.assignment.revision) == (state == "DRAIN")
    machine.states, machine.reason = set(), ""
    world.settle()
    assert world.serving == {"n0000"}


@pytest.mark.parametrize(("reason", "kept"), [(PERSON, PERSON), ("", "set DOWN in Slurm")])
def test_node_set_down_by_hand_stays_out_after_a_cordon(reason: str, kept: str) -> None:
    world, machine = served(2)
    machine.states, machine.reason, machine.cordoned = {"DOWN"}, reason, True
    world.settle()
    assert world.member(machine).pod is None
    machine.cordoned = False
    world.settle()
    assert machine.running is not None
    assert (machine.states, machine.reason) == ({"DRAIN"}, kept)


def test_no_node_without_slurmd_is_forgotten_that_a_person_has_drained() -> None:
    world, machine = served()
    machine.cordoned = True
    world.settle()
    assert world.member(machine).pod is None
    machine.reason = PERSON
    machine.cordoned = False
    world.change(template=2, slurm={"weight": 3})
    world.settle()
    assert machine.running is not None
    assert (machine.states, machine.reason) == ({"DRAIN"}, PERSON)


def test_a_reservation_that_has_begun_is_waited_for_where_slurm_has_to_forget_the_node() -> None:
    world, machine = served(2)
    machine.states = {"RESERVED"}
    world.change(template=2, slurm={"weight": 3})
    world.settle()
    assert machine.states == {"RESERVED"}
    assert machine.running
    assert world.serving == {"n0001"}
    machine.states = set()
    world.settle()
    assert world.serving == {"n0000", "n0001"}


def test_a_node_in_a_bad_condition_is_drained_all_the_time_that_it_is_replaced() -> None:
    world, machine = served()
    machine.bad = True
    world.settle(2)
    world.change(template=2)
    for _ in range(20):
        world.step()
        assert "DRAIN" in machine.states
    assert machine.running is not None
    assert machine.running.revision == world.pool.assignment.revision
    machine.bad = False
    world.settle()
    assert world.serving == {"n0000"}


def test_a_node_that_somebody_elses_slurmd_has_is_left_alone() -> None:
    world = World(2)
    machine = world.machines["n0000"]
    machine.in_slurm = machine.static = True
    world.settle()
    assert machine.running is None
    assert world.serving == {"n0001"}


def test_nodes_of_others_are_neither_counted_nor_drained_nor_deleted_where_a_pool_has_enough() -> None:
    """They match the pool as its own do."""
    world = World(5, replace(POOL, replicas=2))
    for name, static in (("n0000", True), ("n0001", False), ("n0003", False)):
        machine = world.machines[name]
        machine.in_slurm, machine.static, machine.jobs = True, static, 8
    world.settle()
    assert world.serving == {"n0002", "n0004"}
    world.machines["n0001"].jobs = world.machines["n0003"].jobs = 0
    world.settle()
    assert world.serving == {"n0002", "n0004"}
    assert all(machine.in_slurm for machine in world.machines.values())
    assert not any(machine.states for machine in world.machines.values())


def test_a_host_that_slurm_powers_up_is_not_the_pools() -> None:
    world = World(2)
    host, cloud = world.machines.values()
    host.in_slurm = host.static = cloud.in_slurm = cloud.static = True
    host.states, cloud.states = {"POWERING_UP"}, {"POWERING_UP", "CLOUD"}
    world.settle()
    assert host.running is None
    assert cloud.running is not None


def test_in_a_maintenance_slurm_forgets_the_node_when_that_is_over() -> None:
    world, machine = served(1, wide(in_maintenance=True))
    machine.states = {"MAINTENANCE", "RESERVED"}
    world.change(template=2, slurm={"weight": 3})
    world.settle(10)
    assert machine.running is None
    assert machine.in_slurm
    machine.states -= {"MAINTENANCE", "RESERVED"}
    world.settle()
    assert world.serving == {"n0000"}


def test_nodes_that_are_powered_down_and_that_a_pool_has_no_use_for_are_left_alone() -> None:
    world = World(2, replace(POOL, replicas=1))
    for machine in world.machines.values():
        machine.in_slurm, machine.states = True, {"CLOUD", "POWERED_DOWN"}
    world.settle()
    assert all(each.states == {"CLOUD", "POWERED_DOWN"} for each in world.machines.values())


def test_a_node_that_is_external_in_slurm_is_left_alone() -> None:
    """Nobody runs slurmd there, and no native job comes; the extender's jobs do."""
    world = World(3)
    machine = world.machines["n0000"]
    machine.in_slurm = machine.static = True
    machine.states, machine.pods = {"EXTERNAL"}, 2
    made = world.machines["n0001"]  # by scontrol create
    made.in_slurm, made.states = True, {"EXTERNAL"}
    world.settle()
    assert world.serving == {"n0002"}
    assert world.state.wanted == 1
    assert machine.states == made.states == {"EXTERNAL"}


def test_a_node_whose_slurmd_is_the_hosts_by_its_label_is_in_no_pool() -> None:
    """Also before slurmd of the host has ever registered."""
    world = World(3)
    machine = world.machines["n0000"]
    machine.label = ON_HOST
    world.decide()
    assert {each.member.node for each in world.actions} == {"n0001", "n0002"}
    world.settle()
    assert machine.assigned is None
    assert machine.host_slurmd
    assert world.state.wanted == 2


def test_a_node_that_gets_the_label_leaves_its_pool_when_its_job_has_ended() -> None:
    """slurmd of the host starts at once when Slurm has forgotten the node, and keeps its own."""
    world, machine = served(2)
    world.start_job(machine)
    machine.label = ON_HOST
    world.settle()
    assert machine.running
    assert machine.reason.endswith("the Node leaves the pool")
    machine.jobs = machine.pods = 0
    world.settle()
    member = world.member(machine)
    assert member.assigned is None
    assert member.pod is None
    assert machine.host_slurmd
    assert not machine.states
    assert world.lost_jobs == 0


def test_a_node_that_loses_the_label_comes_back() -> None:
    world = World(1)
    machine = world.machines["n0000"]
    machine.label = ON_HOST
    world.settle()
    machine.label = None
    world.settle()
    assert world.serving == {"n0000"}


def test_a_node_of_slurm_conf_that_has_left_is_resumed_by_a_person() -> None:
    """Slurm cannot delete it, and slurmd of the host takes it over."""
    world = World(1)
    machine = world.machines["n0000"]
    world.settle()
    machine.static, machine.label = True, ON_HOST
    world.settle()
    assert machine.assigned is machine.running is None
    assert machine.states == {"DRAIN"}
    machine.states, machine.reason = set(), ""
    world.settle()
    assert not machine.states


def test_a_node_that_is_powered_down_is_forgotten_when_it_leaves() -> None:
    """Power saving takes the instance type away by which a pool knows what its Pods have made."""
    world, machine = served()
    machine.states, machine.mark = {"POWERED_DOWN"}, ""
    world.settle()
    machine.matches = False
    world.settle()
    assert not machine.in_slurm
    assert machine.assigned is None
