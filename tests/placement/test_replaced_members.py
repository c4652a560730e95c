"""Tests of a running gang that lost a member: the Pod that replaces the member gets a slot of the
job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.cause import Kind
from extender.jobs.grants import changed_slot
from extender.pod_request.constraints.node_constraints import Taint
from extender.pod_request.job_request import Request
from extender.record.events import (
    ClusterObserved,
    EvictPod,
    ReadJob,
    Submit,
    WriteAllocation,
    WriteAttempt,
)
from extender.record.member import Member
from extender.record.members import with_slots
from extender.record.states import State
from slurm_client.job_state import JobState
from slurm_client.model import Job
from tests.builders import changed, pod
from tests.placement.ledger_world import (
    NATIVE,
    REQUEST,
    World,
    calm_down,
    of_kind,
    of_user,
)
from tests.placement.test_groups import (
    GROUP,
    bind_all,
    ends_well_by_one_job,
    group_of_three,
    members_of,
    record_of,
    rejected_group,
    restarted_group,
    state_of,
    told_of,
)
from wellknown.allocation import Allocation

AWAY = Taint("node.kubernetes.io/unreachable", "", "NoExecute")


def test_replacement_pod_gets_the_slot_of_the_lost_member() -> None:
    world = group_of_three()
    bind_all(world)
    (job,) = world.jobs.values()
    slot = world.allocation_of("u1")
    world.remove_pod("u1")
    late = world.replace_member(GROUP)
    done = world.settle()
    assert {type(each) for each in done} == {ReadJob, WriteAllocation}
    assert world.allocation_of(late) == slot
    assert state_of(world) is State.BOUND
    ends_well_by_one_job(world)
    assert list(world.jobs) == [job.id]


def lost_member(request: Request = REQUEST) -> tuple[World, str]:
    """Returns a world with a running group, one of whose three Pods was replaced by an unbound Pod."""
    world = group_of_three(request)
    bind_all(world)
    world.remove_and_settle("u1")
    return world, world.replace_member(GROUP)


@pytest.mark.parametrize("written", [False, True])
def test_next_leader_fills_the_slot_of_a_lost_member(written: bool) -> None:
    world, late = lost_member()
    if written:
        world.settle()
    world.restart_and_settle()
    assert state_of(world) is State.BOUND
    ends_well_by_one_job(world)
    assert late in members_of(world)


def test_a_replacement_that_kube_scheduler_rejects_does_not_end_the_group() -> None:
    world, late = lost_member()
    world.unbindable.add(late)
    calm_down(world, 60)
    assert state_of(world) is State.BOUND
    assert world.pods[late].life.node is None
    world.unbindable.clear()
    ends_well_by_one_job(world)


def test_a_replacement_that_another_scheduler_binds_is_no_member() -> None:
    world, late = lost_member()
    world.settle()
    world.write(changed(world.pods[late], node="n4", gates=()))
    assert not of_kind(world.settle(), EvictPod)
    assert members_of(world) == ["u2", "u3"]
    assert state_of(world) is State.BOUND


def test_a_replacement_gets_the_attempt_of_its_group() -> None:
    world = restarted_group()
    world.remove_and_settle(min(world.pods))
    late = world.replace_member(GROUP)
    world.settle()
    assert world.pods[late].scheduling.attempt == 2
    ends_well_by_one_job(world)


def test_a_replacement_waits_for_containers_of_the_lost_member() -> None:
    world = group_of_three()
    bind_all(world)
    world.force_delete("u1")
    world.settle()
    late = world.replace_member(GROUP)
    world.settle()
    assert late in members_of(world)
    assert world.pods[late].scheduling.allocation is None
    calm_down(world, 60)
    ends_well_by_one_job(world)


def test_a_lost_job_is_requested_again_with_the_node_of_the_replacement() -> None:
    world, late = lost_member()
    world.settle()
    world.forget_the_job(GROUP)
    world.poll_until_lost()
    (asked,) = of_kind(world.settle(), Submit)
    nodes = {pod.scheduling.allocation.node for pod in world.pods.values() if pod.scheduling.allocation}
    assert set(asked.job.required_nodes) == nodes
    assert world.allocation_of(late).node in nodes
    ends_well_by_one_job(world)


def test_an_ended_job_evicts_the_replacement_too() -> None:
    world, late = lost_member()
    world.settle()
    (job,) = world.jobs.values()
    world.disturb(job.id, "CANCELLED")
    world.settle()
    assert late in {each.pod.uid for each in of_kind(world.poll(), EvictPod)}


def test_an_unlike_replacement_waits_until_its_running_group_ends() -> None:
    world = group_of_three()
    bind_all(world)
    world.remove_pod("u1")
    late = world.replace_member(GROUP, of_user(7))
    done = world.settle()
    words = "the gang started without this Pod: the Pod waits until the gang has ended"
    assert told_of(done, late) == words
    assert state_of(world) is State.BOUND
    assert not of_kind(done, EvictPod)


def test_replacements_wait_for_the_next_start_while_all_members_leave() -> None:
    world = group_of_three()
    bind_all(world)
    for uid in ("u1", "u2", "u3"):
        world.delete_pod(uid, 20)
    lates = [world.replace_member(GROUP) for _ in range(3)]
    world.settle()
    assert not set(lates) & set(members_of(world))
    calm_down(world, 40)
    ends_well_by_one_job(world)
    assert len(world.jobs) == 2


def test_a_replacement_alone_starts_the_group_again() -> None:
    """The other members are gone before the replacement is bound."""
    world, late = lost_member()
    world.settle()
    for uid in ("u2", "u3"):
        world.remove_pod(uid)
    world.settle()
    assert state_of(world) is State.REPLACING
    for _ in range(2):
        world.replace_member(GROUP)
    ends_well_by_one_job(world)
    assert late in members_of(world)


# The next leader


@pytest.mark.parametrize("stays", [False, True])
def test_the_next_leader_does_not_end_a_gang_for_a_replacement(stays: bool) -> None:
    """The slot is written, and kube-scheduler rejects the Node; or the replacement is deleted again."""
    world, late = lost_member()
    world.settle()
    world.unbindable.add(late)
    world.restart_and_settle()
    if stays:
        calm_down(world, 60)
    else:
        assert not of_kind(world.remove_and_settle(late), EvictPod)
    assert {"u2", "u3"} <= set(world.pods)
    assert state_of(world) is State.BOUND


def test_the_next_leader_requests_a_lost_job_again_beside_a_replacement() -> None:
    world, _ = lost_member()
    world.settle()
    world.restart_and_settle()
    world.forget_the_job(GROUP)
    world.poll_until_lost()
    assert not of_kind(world.settle(), EvictPod)


def test_the_next_leader_keeps_a_gang_with_a_finished_member() -> None:
    world = group_of_three()
    bind_all(world)
    world.change_and_settle("u3", finished=True)
    world.remove_and_settle("u1")
    world.replace_member(GROUP)
    world.settle()
    world.restart()
    assert not of_kind(world.settle(), EvictPod)


def all_or_none(world: World) -> bool:
    bound = [each.life.node for each in world.pods.values()]
    return all(bound) or not any(bound)


def test_a_gang_that_is_half_numbered_and_half_bound_is_no_running_gang() -> None:
    world = rejected_group()
    while not of_kind(world.effects, WriteAttempt):
        world.carry_out(world.effects.pop(0))
    first, second = of_kind(world.effects, WriteAttempt)
    world.begin_binding(first.pod.uid)
    world.do(second)
    world.finish_binding(first.pod.uid)
    world.restart()
    calm_down(world, 120)
    assert all_or_none(world)


def test_a_first_start_is_all_or_none_beside_a_replacement() -> None:
    world = group_of_three()
    world.bind_and_settle("u1")
    world.unbindable.add("u3")
    world.acting.news.clear()
    world.pods.pop("u2")  # while no leader acts
    world.disturbed.add(GROUP)
    world.unbindable.add(world.replace_member(GROUP))
    world.restart()
    calm_down(world, 120)
    assert all_or_none(world)


def test_the_next_leader_binds_no_replacement_beside_old_containers() -> None:
    world = group_of_three()
    bind_all(world)
    world.force_delete("u1")
    world.settle()
    ((_, until),) = world.containers.values()
    late = world.replace_member(GROUP)
    world.restart_and_settle()
    calm_down(world, 3)
    assert world.now < until
    assert world.pods[late].life.node is None
    calm_down(world, 60)
    ends_well_by_one_job(world)


# Slots


def test_a_replacement_gets_no_device_that_a_moved_member_still_has() -> None:
    """The job was started again: the cores of a bound Pod are written again, and its devices stay."""
    before = Allocation(7, "n1", "gpu:1(IDX:1)", cores="1")
    bound = changed(pod("p2", uid="u2", node="n1"), allocation=before, job_id=7)
    gpus = [Allocation(7, "n1", f"gpu:1(IDX:{gpu})", cores=str(4 + gpu)) for gpu in (0, 1)]
    (moved,) = with_slots((Member(bound, slot=before),), gpus, bound=True)
    assert moved.slot == gpus[1]
    moved = moved._replace(pod=changed(bound, allocation=changed_slot(bound, moved.slot)))
    _, late = with_slots((moved, Member(pod("p4", uid="u4"))), gpus, bound=True)
    assert late.slot == gpus[0]


def test_a_replacement_gets_no_slot_that_a_bound_pod_still_uses() -> None:
    used = Allocation(7, "n1", "gpu:1(IDX:0)", cores="0")
    other = Member(changed(pod("p2", uid="u2", node="n1"), allocation=used, job_id=7), slot=used)
    shifted = [Allocation(7, "n1", "gpu:1(IDX:1)", cores="1"), Allocation(7, "n1", "", cores="0-1")]
    _, late = with_slots((other, Member(pod("p4", uid="u4"))), shifted, bound=True)
    assert late.slot is None


def packed_gang_without_a_member() -> World:
    world = World(nodes=("n1", "n2"))
    world.create_group(3, packed=True)
    world.catch_up_with_slurm()
    bind_all(world)
    world.remove_and_settle("u1")
    return world


def lose_and_repeat_the_job(world: World) -> None:
    world.forget_the_job(GROUP)
    world.poll_until_lost()
    world.settle()
    world.start_and_poll()
    world.outlast(10)


def test_a_slot_that_changed_after_the_write_is_written_again() -> None:
    world = packed_gang_without_a_member()
    late = world.replace_member(GROUP)
    world.settle()
    lose_and_repeat_the_job(world)
    calm_down(world, 120)
    assert world.pods[late].life.node


def test_a_replacement_without_a_slot_reads_why_it_waits() -> None:
    """The job was lost while a member was missing. So the new job has no slot for the member."""
    world = packed_gang_without_a_member()
    lose_and_repeat_the_job(world)
    late = world.replace_member(GROUP)
    done = world.settle()
    words = "the gang started without this Pod: the Pod waits until the gang has ended"
    assert told_of(done, late) == words
    assert state_of(world) is State.BOUND


def test_a_replacement_on_a_node_that_is_away_reads_why_it_waits() -> None:
    """The job is lost, and the next job does not require the Node. So the job has no slot there."""
    world, late = lost_member()
    world.settle()
    node = world.allocation_of(late).node
    world.view = world.view.with_node(node, replace(world.view.nodes[node], taints=(AWAY,)))
    world.tell(ClusterObserved(world.view))
    lose_and_repeat_the_job(world)
    member = record_of(world).member(late)
    assert member is not None
    assert member.slot is None
    shown = member.shown
    assert shown is not None
    assert shown.kind is Kind.GANG_BEGUN


def test_a_replacement_that_waits_for_containers_reads_why() -> None:
    world = group_of_three()
    bind_all(world)
    world.force_delete("u1")
    world.settle()
    late = world.replace_member(GROUP)
    assert "that another Pod still uses" in told_of(world.settle(), late)


def test_the_slot_of_an_unlisted_pod_waits_for_its_containers() -> None:
    world = group_of_three()
    bind_all(world)
    world.force_delete("u1", seen=False)
    world.settle()
    late = world.replace_member(GROUP)
    world.settle()
    assert world.pods[late].scheduling.allocation is None


# The job is lost


def test_a_taken_node_of_a_replacement_does_not_end_the_gang() -> None:
    world, late = lost_member()
    world.settle()
    world.forget_the_job(GROUP)
    node = world.allocation_of(late).node
    world.jobs[5] = Job(5, JobState("RUNNING"), name=NATIVE, submit_time=0, nodes=(node,))
    world.poll_until_lost()
    world.settle()
    assert not of_kind(world.outlast(int(world.rules.restart_wait) + 60), EvictPod)


def test_a_lost_job_is_not_requested_again_if_all_bound_members_leave() -> None:
    world, late = lost_member()
    world.unbindable.add(late)
    world.settle()
    for uid in ("u2", "u3"):
        world.delete_pod(uid, 25)
    world.settle()
    world.forget_the_job(GROUP)
    world.poll_until_lost()
    assert not of_kind(world.settle(), Submit)


def test_the_event_about_a_slot_does_not_count_the_time_of_the_gang() -> None:
    world = group_of_three()
    bind_all(world)
    world.replace_member(GROUP)
    world.wait(3600.0)
    world.remove_pod("u1")
    (write,) = of_kind(world.settle(), WriteAllocation)
    assert write.learned_at is None
