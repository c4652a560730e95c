"""Tests of the decisions about pools: how nodes join a pool, are drained, and get new revisions of the
template, without harm to native jobs."""

from dataclasses import replace
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.node_sync.drains import TAKE_BACK
from extender.pools.pool import Pool, Update
from extender.pools.roll_out import Assign, Drain, decide
from tests.pools.world import PERSON, POOL, World, served


def wide(**update: int | str | bool) -> Pool:
    return replace(POOL, update=replace(Update(), **update))  # type: ignore[arg-type]


def test_two_nodes_try_a_template_before_all_nodes_get_it() -> None:
    world = World(50)
    world.decide()
    assert [type(each) for each in world.actions] == [Assign, Assign]
    world.settle(5)
    assert len(world.serving) == 50
    assert world.state.serving == world.state.wanted == world.state.updated == 50
    assert world.state.busy == 0
    jobs, pods, leaving, *_ = world.machines.values()
    jobs.jobs, pods.pods, leaving.jobs, leaving.cordoned = 8, 2, 8, True
    world.decide()
    assert world.state.busy == 2


def test_crashing_template_stops_after_two_nodes_with_the_reason() -> None:
    world = World(50)
    world.bad = {POOL.assignment.revision}
    world.settle()
    assert len(world.got_bad) == 2
    assert "2 slurmd Pods of gpu-" in world.state.stopped
    assert "on n0000: CrashLoopBackOff" in world.state.stopped


def test_pool_has_as_many_nodes_as_replicas() -> None:
    world, _ = served(10, replace(POOL, replicas=4))
    assert world.serving == {"n0000", "n0001", "n0002", "n0003"}


def test_pool_that_becomes_smaller_drops_idle_nodes_and_waits_for_jobs() -> None:
    world, _ = served(4)
    for name in ("n0000", "n0003"):
        world.start_job(world.machines[name])
    world.pool = replace(POOL, replicas=1)
    world.settle()
    assert {name for name, each in world.machines.items() if each.in_slurm} == {"n0000", "n0003"}
    assert "DRAIN" in world.machines["n0003"].states
    world.machines["n0003"].jobs = 0
    world.settle()
    assert {name for name, each in world.machines.items() if each.in_slurm} == {"n0000"}
    assert world.machines["n0003"].running is None
    assert world.lost_jobs == 0


def test_leaving_node_that_matches_again_stays() -> None:
    world, _ = served(2)
    world.start_job(world.machines["n0001"])
    world.machines["n0001"].matches = False
    world.settle()
    assert "DRAIN" in world.machines["n0001"].states
    world.machines["n0001"].matches = True
    world.settle()
    assert world.serving == {"n0000", "n0001"}
    assert world.machines["n0001"].jobs


def test_a_changed_template_replaces_idle_nodes_first_and_one_at_a_time() -> None:
    world, _ = served(6)
    for name in ("n0000", "n0001"):
        world.start_job(world.machines[name])
    world.change(template=2)
    world.decide()
    assert [(type(each), each.member.node) for each in world.actions] == [(Drain, "n0002")]
    world.settle()
    assert world.serving == {"n0002", "n0003", "n0004", "n0005"}
    assert world.machines["n0000"].states == {"DRAIN"}  # the next node: slurmd ends after the job
    assert not world.machines["n0001"].states
    assert world.most_out == 1
    world.machines["n0000"].jobs = world.machines["n0001"].jobs = 0
    world.settle()
    assert len(world.serving) == 6
    assert world.lost_jobs == 0


def test_empty_nodes_are_replaced_before_nodes_with_placeholders() -> None:
    world, first = served(3)
    first.pods = world.machines["n0001"].pods = 2
    world.change(template=2)
    order = list[str]()
    for _ in range(30):
        world.step()
        order += [each.member.node for each in world.actions if isinstance(each, Assign)]
    assert list(dict.fromkeys(order)) == ["n0002", "n0000", "n0001"]
    assert first.pods == 2


@pytest.mark.parametrize("wrong", ["bad", "mute"])
def test_failing_slurmd_goes_back_while_placeholders_exist(wrong: str) -> None:
    world, first = served(4, wide(max_unavailable=4))
    old = world.pool.assignment
    for machine in world.machines.values():
        machine.pods = 2
    world.change(template=2)
    setattr(world, wrong, {world.pool.assignment.revision})
    tried = set[str]()
    for _ in range(100):
        world.step()
        tried |= {each.member.node for each in world.actions if isinstance(each, Assign)}
    assert tried == {"n0000", "n0001"}
    assert world.lost_pods == 0
    assert not any(each.states for each in world.machines.values())
    assert {each.running.revision for each in world.machines.values() if each.running} == {old.revision}
    why = {"bad": "CrashLoopBackOff", "mute": "for a third of SlurmdTimeout (300 s)"}[wrong]
    assert f"2 slurmd Pods of {world.pool.assignment.revision} fail; on n0000: " in world.state.stopped
    assert why in world.state.stopped
    assert first.assigned
    assert first.assigned.failed == world.pool.assignment.revision
    world.change(template=3)
    world.settle()
    assert len(world.serving) == 4
    assert all(each.assigned == world.pool.assignment for each in world.machines.values())
    assert world.lost_pods == 0


@pytest.mark.parametrize("pods", [0, 2])
def test_a_roll_out_of_images_that_cannot_be_pulled_ends_no_slurmd(pods: int) -> None:
    """Nodes with placeholders continue to take jobs. Without placeholders, the first two nodes stay
    drained, as with every failing template."""
    world, _ = served(4, wide(max_unavailable=4))
    old = {name: machine.running for name, machine in world.machines.items()}
    for machine in world.machines.values():
        machine.pods = pods
    world.change(template=2)
    world.unpullable = {world.pool.assignment.revision}
    world.settle(100)
    assert {name: machine.running for name, machine in world.machines.items()} == old
    assert f"n0000: images of {world.pool.assignment.revision}: not pulled" in world.state.stopped
    assert world.state.unavailable == (0 if pods else 2)
    world.unpullable = set()
    world.change(template=3)
    world.settle()
    assert len(world.serving) == 4
    assert world.lost_pods == 0


def test_one_bad_template_after_another_loses_no_placeholder() -> None:
    world, first = served()
    first.pods = 2
    for template in range(2, 8):
        world.change(template=template)
        world.mute.add(world.pool.assignment.revision)
        world.settle(7)
    assert world.lost_pods == 0
    assert first.pods == 2


def test_newer_template_replaces_a_template_with_a_pending_pull() -> None:
    """The slurmd of the first template continues to run, because the images of the second template are
    not pulled yet."""
    world, first = served()
    first.pods = 2
    world.change(template=2)
    world.decide()  # drains the node
    world.decide()
    assert first.assigned
    assert first.assigned.revision == world.pool.assignment.revision
    world.change(template=3)
    world.decide()
    assert first.assigned.revision == world.pool.assignment.revision
    world.settle()
    assert world.serving == {"n0000"}


def test_node_goes_back_to_the_last_revision_that_served() -> None:
    """The images of the second revision cannot be pulled, and a person undrains the node. Then the
    slurmd of the third revision does not register, so the node gets the first revision again."""
    world, first = served()
    old = world.pool.assignment
    world.change(template=2)
    world.unpullable = {world.pool.assignment.revision}
    world.settle(5)
    first.pods, first.states, first.reason = 2, set(), ""
    world.change(template=3)
    world.mute = {world.pool.assignment.revision}
    world.settle()
    assert first.running
    assert first.running.revision == old.revision
    assert world.lost_pods == 0


def test_node_goes_back_to_the_old_revision_after_a_short_cordon() -> None:
    world, first = served()
    first.pods, first.cordoned, old = 2, True, world.pool.assignment
    world.settle(4)
    assert world.member(first).pod is None
    first.cordoned = False
    world.change(template=2)
    world.bad = {world.pool.assignment.revision}
    world.settle()
    assert first.running
    assert first.running.revision == old.revision
    assert world.lost_pods == 0


def test_change_back_to_the_old_template_applies_at_once() -> None:
    world, first = served()
    first.pods, old = 2, world.pool.assignment
    world.change(template=2)
    world.mute = {world.pool.assignment.revision}
    world.settle(5)
    assert first.running == replace(world.pool.assignment, before=old.revision)
    world.change(template=1)
    world.step()
    assert [type(each) for each in world.actions] == [Assign]
    world.settle(6)
    assert first.running
    assert first.running.revision == old.revision
    assert (first.assigned, first.states) == (old, set())


def test_node_that_went_back_retries_when_its_placeholders_are_gone() -> None:
    world, first = served(3)
    for machine in world.machines.values():
        machine.pods = 2
    world.change(template=2)
    world.mute = {world.pool.assignment.revision}
    while not (first.assigned and first.assigned.failed):
        world.step()
    world.mute = set()
    world.settle(100)
    assert world.serving == {"n0001", "n0002"}
    assert not first.states
    first.pods = 0
    world.settle()
    assert len(world.serving) == 3
    assert world.lost_pods == 0


def test_stopped_roll_out_continues_on_an_empty_node_that_went_back() -> None:
    """The cause of the failure may have ended: for example, the registry is available again."""
    world, first = served(2)
    for machine in world.machines.values():
        machine.pods = 2
    world.change(template=2)
    world.mute = {world.pool.assignment.revision}
    world.settle(100)
    assert world.state.stopped
    world.mute, first.pods = set(), 0
    world.settle()
    assert world.serving == {"n0000"}
    assert not world.state.stopped
    assert world.lost_pods == 0


@pytest.mark.parametrize(("most", "at_once"), [(3, 3), ("50%", 10), ("1%", 1)])
def test_max_unavailable_limits_the_nodes_out_of_service(most: int | str, at_once: int) -> None:
    world, _ = served(20, wide(max_unavailable=most))
    world.change(template=2)
    world.settle(150)
    assert len(world.serving) == 20
    assert world.most_out == at_once


def test_old_template_restores_the_pool_after_a_crashing_roll_out() -> None:
    world, _ = served(20, wide(max_unavailable=10))
    world.change(template="bad")
    world.bad = {world.pool.assignment.revision}
    world.settle()
    assert len(world.got_bad) == 2
    assert world.state.stopped
    assert world.state.serving == 18
    world.change(template=1)
    world.settle(6)
    assert len(world.serving) == 20
    assert not world.state.stopped


def test_new_node_gets_the_old_revision_while_the_newest_crashes() -> None:
    world = World(5)
    world.machines["n0004"].matches = False
    world.settle()
    good = world.pool.assignment
    world.pool = replace(world.pool, update=Update(stop_after=1), data={"template": "bad"})
    world.bad = {world.pool.assignment.revision}
    world.settle()
    world.machines["n0004"].matches = True
    world.settle()
    running = world.machines["n0004"].running
    assert running
    assert running.revision == good.revision
    assert len(world.got_bad) == 1


def test_cordoned_node_loses_slurmd_after_its_job_and_comes_back() -> None:
    world, _ = served(2)
    machine = world.machines["n0001"]
    world.start_job(machine)
    machine.cordoned = True
    world.settle()
    assert machine.running is not None
    machine.jobs = 0
    world.settle()
    assert world.member(machine).pod is None
    assert machine.in_slurm
    # Until slurmd is back, the node must stay drained. If Slurm started a job, Slurm would notice only
    # after minutes that slurmd is missing.
    machine.cordoned = False
    world.step()
    world.start_job(machine)
    assert not machine.jobs
    world.settle()
    assert world.serving == {"n0000", "n0001"}
    assert not machine.states


def test_drain_for_a_condition_becomes_a_pool_drain_before_slurmd_ends() -> None:
    """When the condition ends, the extender clears the drain for the condition. Without the pool's own
    drain, Slurm would then start a job before slurmd runs."""
    world, machine = served()
    machine.states, machine.reason = {"DRAIN"}, "slurm-extender: condition example.io/A: bad"
    world.change(template=2)
    world.decide()
    assert [type(each) for each in world.actions] == [Drain]
    world.decide()
    assert [type(each) for each in world.actions] == [Assign]


def test_deleted_slurmd_pod_keeps_its_job_and_gets_no_new_jobs() -> None:
    world, machine = served()
    world.start_job(machine)
    machine.deleted = True
    world.settle()
    assert machine.states == {"DRAIN"}
    assert machine.running
    machine.jobs = 0
    world.settle()
    assert world.serving == {"n0000"}
    assert not machine.states


def test_template_changes_below_pods_and_slurm_fields_after_their_end() -> None:
    """To change features or weight, the pool must delete the node in Slurm, because slurmctld reads both
    only when the node is created. Slurm cannot delete a node with jobs."""
    world, machine = served(2)
    machine.pods = 2
    world.change(template=2)
    world.settle()
    assert world.serving == {"n0000", "n0001"}
    assert machine.pods == 2
    world.change(template=2, slurm={"weight": 3})
    world.settle()
    assert world.serving == {"n0001"}
    assert machine.states == {"DRAIN"}
    machine.pods = 0
    world.settle()
    assert world.serving == {"n0000", "n0001"}


def test_node_without_its_annotations_is_created_again() -> None:
    """If a Node is deleted and recreated, its annotations are lost."""
    world, machine = served()
    machine.assigned = machine.running = None
    world.settle()
    assert world.serving == {"n0000"}


@pytest.mark.parametrize("state", ["POWERED_DOWN", "POWERING_DOWN"])
def test_powered_down_node_runs_no_slurmd_until_powered_up(state: str) -> None:
    world, _ = served(3)
    machine = world.machines["n0001"]
    machine.states = {state}
    world.settle()
    assert world.member(machine).pod is None
    assert machine.in_slurm
    machine.states = {"POWERING_UP"}
    world.step()
    assert machine.assigned == replace(world.pool.assignment, boots=True)
    world.settle()
    assert world.member(machine).pod
    assert machine.assigned == world.pool.assignment  # after the boot, the normal assignment
    assert world.lost_jobs == 0


def test_slurmd_that_ran_on_during_a_power_down_has_to_boot() -> None:
    """While no extender led, slurmd ran on during the power-down. slurmctld would reject the
    registration of a slurmd without a boot, and would end the job."""
    world, machine = served()
    machine.states, machine.jobs = {"POWERING_UP"}, 8
    machine.started = 0
    for _ in range(10):
        world.step()
    assert not machine.states
    assert machine.running is not None
    assert machine.running.boots


def test_pool_drain_of_a_powered_down_node_is_removed() -> None:
    """Because the slurmd Pod was deleted, the node is drained. Slurm powers up no drained node."""
    world, machine = served()
    machine.states, machine.reason = {"POWERED_DOWN", "DRAIN"}, "slurm-extender pool gpu: deleted"
    world.settle()
    assert world.states_of(machine) == {"POWERED_DOWN"}


def test_in_maintenance_only_reserved_nodes_are_replaced() -> None:
    world, _ = served(3, wide(in_maintenance=True))
    world.change(template=2)
    world.settle()
    assert world.serving == set()
    world.machines["n0001"].states |= {"MAINTENANCE"}
    world.settle()
    assert world.serving == {"n0001"}


def test_a_drain_ends_with_the_maintenance() -> None:
    world, machine = served(1, wide(in_maintenance=True))
    world.start_job(machine)
    machine.states = {"MAINTENANCE"}
    world.change(template=2)
    world.settle(3)
    assert "DRAIN" in machine.states
    machine.states -= {"MAINTENANCE"}
    world.settle(3)
    assert not machine.states


def test_cordoned_node_that_is_down_loses_slurmd() -> None:
    world, machine = served()
    machine.states, machine.reason, machine.cordoned = {"DOWN"}, "Not responding", True
    world.settle()
    assert machine.running is None


def test_slurmds_that_never_register_stop_a_roll_out_with_the_reason() -> None:
    """slurmd runs and does not crash, but has, for example, a wrong address of slurmctld or lacks a
    volume."""
    world = World(20)
    for machine in world.machines.values():
        machine.silent = True
    world.settle(50)
    assert not world.state.stopped
    world.settle(20)
    assert sum(each.running is not None for each in world.machines.values()) == 2
    assert "has not registered at slurmctld for 10 minutes" in world.state.stopped


def test_template_with_a_rejected_registration_stops_after_two_nodes() -> None:
    """For example, the template names more devices than slurmd finds."""
    world = World(20)
    world.refused = {world.pool.assignment.revision}
    world.settle(20)
    assert sum(each.running is not None for each in world.machines.values()) == 2
    assert "rejects its registration: gres/gpu count (0 < 2)" in world.state.stopped
    world.change(template=2, slurm={"gres": "gpu:h100:2"})
    world.settle()
    assert len(world.serving) == 20


@pytest.mark.alone
def test_decision_about_5000_nodes_takes_less_than_a_second() -> None:
    world = World(5000)
    world.settle(6)
    began = process_time()
    world.decide()
    assert world.state.serving == 5000
    assert process_time() - began < 1


def test_next_leader_removes_a_drain_that_a_crash_left() -> None:
    world, machine = served()
    machine.states, machine.reason = {"DRAIN"}, "slurm-extender pool gpu: roll-out of gpu-123"
    world.decide()
    assert [type(each) for each in world.actions] == [Drain]
    assert machine.states == set()


def test_cordoned_node_undrained_by_hand_stays_out_until_slurmd_is_back() -> None:
    world, machine = served()
    machine.states, machine.reason, machine.cordoned = {"DOWN"}, PERSON, True
    world.step()
    world.step()
    world.undrain(machine)
    world.step()
    world.step()
    assert machine.running is None
    machine.cordoned = False
    world.step()
    world.start_job(machine)
    assert world.lost_jobs == 0
    assert "DRAIN" in machine.states
    world.settle()
    assert world.serving == {"n0000"}


@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([1, 2, "30%"]))
def test_all_nodes_get_the_newest_template_and_no_job_is_lost(
    seed: int, stop_after: int, most: int | str
) -> None:
    """Jobs start and end, Nodes are cordoned, machines are turned off, templates change, and some
    templates crash. Then all disturbances stop, and the last template must reach all nodes."""
    world = World(8, wide(max_unavailable=most, stop_after=stop_after), seed)
    for _ in range(80):
        world.something_happens()
        world.step()
        assert world.lost_jobs == 0
        assert world.lost_pods == 0
    world.change(template="last")
    for machine in world.machines.values():
        machine.cordoned, machine.matches, machine.jobs, machine.pods = False, True, 0, 0
        machine.bad, machine.label, machine.reservations = False, None, []
        machine.states -= {"RESERVED", "MAINTENANCE"}
        world.turn_on(machine)
        world.undrain(machine)
    for _ in range(7):
        world.settle(20)
        if len(world.serving) == 8 and not any(each.states for each in world.machines.values()):
            break
    world.settle(20)  # a further run must not change this state
    assert world.lost_jobs == 0
    assert len(world.serving) == 8
    assert not any(machine.states for machine in world.machines.values())


def test_node_with_a_repeatedly_crashing_slurmd_stays_drained() -> None:
    """The crashing slurmd registers after each restart. If the pool cleared the drain, the node would
    take jobs."""
    world, machine = served()
    machine.states, machine.reason = {"DRAIN"}, "slurm-extender pool gpu: roll-out of gpu-123"
    member = world.member(machine)
    assert member.pod is not None
    assert member.slurm is not None
    names = frozenset({"n0000"})
    (resumed,) = decide(world.pool, [member], names).actions
    assert resumed == Drain(member, TAKE_BACK)
    crashed = replace(member.pod, crashes=3, started=float(world.now - 100))
    slurm = replace(member.slurm, slurmd_started=world.now)
    crashes = replace(member, pod=crashed, slurm=slurm)
    assert not decide(world.pool, [crashes], names).actions
