"""Tests of what pools leave unchanged: nodes of others, drains by a person, and reservations."""

from dataclasses import replace

import pytest

from tests.pools.test_roll_out import wide
from tests.pools.world import PERSON, POOL, World, served
from wellknown.names import ON_HOST


def test_drain_by_a_person_stays_and_its_idle_node_is_replaced() -> None:
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
    """To apply the configuration, the pool would delete the node in Slurm. Slurm would then lose the
    person's state, and the new node would take jobs."""
    world, machine = served()
    machine.states, machine.reason = {state}, PERSON
    world.change(template=2, slurm={"weight": 3})
    world.settle()
    assert (machine.states, machine.reason) == ({state}, PERSON)
    assert machine.running is not None
    # On a node that a person has set DOWN, the pool does not replace slurmd: the registration of a new
    # slurmd would return the node to service (ReturnToService=2).
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


def test_drain_by_a_person_stays_on_a_node_without_slurmd() -> None:
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


def test_active_reservation_delays_the_deletion_of_its_node_in_slurm() -> None:
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


def test_node_in_a_bad_condition_stays_drained_while_replaced() -> None:
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


def test_node_with_a_foreign_slurmd_is_left_alone() -> None:
    world = World(2)
    machine = world.machines["n0000"]
    machine.in_slurm = machine.static = True
    world.settle()
    assert machine.running is None
    assert world.serving == {"n0001"}


def test_foreign_nodes_are_left_alone_if_a_pool_has_enough_nodes() -> None:
    """The foreign nodes match the pool's selector, as the pool's own nodes do."""
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


def test_host_that_slurm_powers_up_is_not_in_the_pool() -> None:
    world = World(2)
    host, cloud = world.machines.values()
    host.in_slurm = host.static = cloud.in_slurm = cloud.static = True
    host.states, cloud.states = {"POWERING_UP"}, {"POWERING_UP", "CLOUD"}
    world.settle()
    assert host.running is None
    assert cloud.running is not None


def test_node_is_deleted_in_slurm_when_the_maintenance_ends() -> None:
    world, machine = served(1, wide(in_maintenance=True))
    machine.states = {"MAINTENANCE", "RESERVED"}
    world.change(template=2, slurm={"weight": 3})
    world.settle(10)
    assert machine.running is None
    assert machine.in_slurm
    machine.states -= {"MAINTENANCE", "RESERVED"}
    world.settle()
    assert world.serving == {"n0000"}


def test_surplus_powered_down_nodes_are_left_alone() -> None:
    world = World(2, replace(POOL, replicas=1))
    for machine in world.machines.values():
        machine.in_slurm, machine.states = True, {"CLOUD", "POWERED_DOWN"}
    world.settle()
    assert all(each.states == {"CLOUD", "POWERED_DOWN"} for each in world.machines.values())


def test_a_node_that_is_external_in_slurm_is_left_alone() -> None:
    """No slurmd runs on an external node, so native jobs cannot start there, but placeholders can."""
    world = World(3)
    machine = world.machines["n0000"]
    machine.in_slurm = machine.static = True
    machine.states, machine.pods = {"EXTERNAL"}, 2
    made = world.machines["n0001"]  # a node that a person has created with `scontrol create`
    made.in_slurm, made.states = True, {"EXTERNAL"}
    world.settle()
    assert world.serving == {"n0002"}
    assert world.state.wanted == 1
    assert machine.states == made.states == {"EXTERNAL"}


def test_node_with_the_host_slurmd_label_is_in_no_pool() -> None:
    """The label keeps the Node out of the pool even before slurmd of the host has registered for the
    first time."""
    world = World(3)
    machine = world.machines["n0000"]
    machine.label = ON_HOST
    world.decide()
    assert {each.member.node for each in world.actions} == {"n0001", "n0002"}
    world.settle()
    assert machine.assigned is None
    assert machine.host_slurmd
    assert world.state.wanted == 2


def test_node_that_gets_the_host_slurmd_label_leaves_after_its_job() -> None:
    """When the pool has deleted the node in Slurm, slurmd of the host starts and registers a new node.
    The pool leaves this new node alone."""
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


def test_node_that_loses_the_host_slurmd_label_comes_back() -> None:
    world = World(1)
    machine = world.machines["n0000"]
    machine.label = ON_HOST
    world.settle()
    machine.label = None
    world.settle()
    assert world.serving == {"n0000"}


def test_node_of_slurm_conf_that_left_stays_drained_until_resumed() -> None:
    """Slurm cannot delete a node of slurm.conf. So slurmd of the host uses the same node, and a person
    must resume the node."""
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


def test_powered_down_node_that_leaves_is_deleted_in_slurm() -> None:
    """By the instance type, a pool recognises the nodes that its slurmd Pods have registered. Power
    saving clears the instance type of a powered-down node."""
    world, machine = served()
    machine.states, machine.mark = {"POWERED_DOWN"}, ""
    world.settle()
    machine.matches = False
    world.settle()
    assert not machine.in_slurm
    assert machine.assigned is None
