"""Tests of the ledger after slurmctld has forgotten a job, or the start of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.sentences import sentence
from extender.placement.ledger import Ledger
from extender.record.events import (
    ClusterObserved,
    Effect,
    ExcludeNodes,
    Failure,
    OrphanFound,
    Remedy,
    ReportWaiting,
    Submit,
)
from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.job_state import JobState
from tests.placement.ledger_world import CORDONED, VIEW, World, kinds, only
from wellknown.job_key import PlaceholderKey


def refused_by_slurm(world: World, kind: type[Effect], times: int) -> list[ReportWaiting]:
    """Lets Slurm refuse `times` requests of this kind. Returns the reports to users from this time."""
    told: list[ReportWaiting] = []
    while times:
        while world.effects:
            effect = world.effects.pop(0)
            refused = isinstance(effect, kind)
            no = Failure(Remedy.CHANGE, "Invalid account")
            world.finish(effect, no if refused else world.do(effect))
            told += [effect] if isinstance(effect, ReportWaiting) else []
            times -= refused
        world.pass_time(5.0)
    return told


def test_bound_pod_runs_on_if_slurmctld_forgot_the_start_of_its_job(world: World) -> None:
    uid = world.bound_pod()
    world.forget_the_start(uid)
    world.poll()
    world.schedule()
    world.wait_and_poll(1.1)
    assert world.state_of(uid) is State.BOUND
    assert world.job_id_of(uid)
    assert world.wait_and_poll(100.0) == []


def test_a_bound_pod_whose_job_is_started_again_elsewhere_is_evicted(world: World) -> None:
    uid = world.bound_pod()
    node = world.pods[uid].life.node
    job_id = world.forget_the_start(uid)
    world.poll()
    elsewhere = next(name for name in VIEW.nodes if name != node)
    world.jobs[job_id] = replace(world.jobs[job_id], state=JobState("RUNNING"), nodes=(elsewhere,))
    world.wait_and_poll(1.1)
    assert uid not in world.pods
    assert not world.live_jobs(uid)


@pytest.mark.parametrize("requeued", [True, False])
def test_a_bound_pod_whose_job_is_requeued_or_not_started_again_is_evicted(requeued: bool) -> None:
    world = World()
    uid = world.bound_pod()
    world.forget_the_start(uid, restart_count=int(requeued))
    world.poll()
    assert (uid not in world.pods) is requeued
    for _ in range(2):
        world.wait_and_poll(world.rules.restart_wait + 1)
    assert uid not in world.pods
    assert not world.live_jobs(uid)


def test_node_that_kube_scheduler_did_not_check_is_not_excluded(world: World) -> None:
    uid = world.settled_pod()
    world.wait(world.rules.unbound_deadline + 1)
    world.poll()
    world.look(uid)
    submitted = next(e for e in world.settle() if isinstance(e, Submit))
    assert (submitted.uid, submitted.job.excluded_nodes) == (uid, ())


def test_forgotten_job_of_a_bound_pod_is_requested_on_the_pods_node(world: World) -> None:
    """A missing job ends no Pod (invariant I5). The ledger requests a job again, because no Pod runs
    without a job for long (invariant I2)."""
    world.bound_pod()
    uid = world.bound_pod()
    key, node = world.live_jobs(uid)[0].admin_comment, world.pods[uid].life.node
    job_id = world.forget_the_job(uid)
    for _ in range(world.rules.confirmations - 1):
        assert world.poll() == []
    again = only(world.poll(), Submit)
    assert again.job.priority == max(1 << 31, again.job.priority or 0)  # higher than all waiting jobs
    world.schedule()
    world.wait_and_poll(1.1)
    (job,) = world.live_jobs(uid)
    assert (job.id, job.admin_comment, job.nodes) == (job_id, key, (node,))
    assert world.state_of(uid) is State.BOUND
    assert world.wait_and_poll(100.0) == []


def test_forgotten_job_of_a_forbidden_pod_is_requested_once_allowed(world: World) -> None:
    uid = world.bound_pod()
    node = world.pods[uid].life.node
    world.forget_the_job(uid)
    world.edit(uid, forbidden=True)
    world.restart()
    for _ in range(world.rules.confirmations):
        assert Submit not in kinds(world.poll())
    world.edit(uid)
    assert Submit in kinds(world.settle())
    (job,) = world.live_jobs(uid)
    assert job.required_nodes == (node,)


def test_observer_is_called_once_for_a_lost_job_of_a_bound_pod() -> None:
    world, lost = World(), list[State]()

    def observe(before: Placeholder | None, after: Placeholder) -> None:
        if before is not None and before.state is after.state:
            assert (before.has_lost_job, after.has_lost_job) == (False, True)
            lost.append(after.state)

    world.acting.ledger = Ledger(world.rules, observe)
    world.tell(ClusterObserved(VIEW))
    world.forget_the_job(world.bound_pod())
    for _ in range(world.rules.confirmations + 2):
        world.poll()
    assert lost == [State.BOUND]


def test_pod_in_binding_gets_its_forgotten_job_back(world: World) -> None:
    """Tests invariant I5 if the Binding begins after the leader's last read of the Pod."""
    uid = world.settled_pod()
    world.begin_binding(uid)
    world.forget_the_job(uid)
    world.poll_until_lost()
    assert world.state_of(uid) is State.REPLACING
    world.finish_binding(uid)
    assert Submit in kinds(world.settle())
    assert world.state_of(uid) is State.BOUND
    (job,) = world.live_jobs(uid)
    assert job.required_nodes == (world.pods[uid].life.node,)


@pytest.mark.parametrize("what", ["nothing", "the Pod is allowed", "the leader restarts"])
def test_refused_pod_outlives_the_job_of_a_deposed_leader(world: World, what: str) -> None:
    uid = world.create_pod()
    world.hear_all()
    late = world.take(Submit)  # the deposed leader's request arrives later
    world.edit(uid, forbidden=True)
    world.restart_and_settle()
    assert world.state_of(uid) is State.INVALID
    world.do(late)
    world.sweep()
    world.settle()
    if what == "the Pod is allowed":
        world.edit(uid)
    elif what == "the leader restarts":
        world.restart()
    for _ in range(3):
        world.poll()
    assert uid in world.pods
    live = [job.id for job in world.live_jobs(uid)]
    assert len(live) == (what == "the Pod is allowed")
    assert late.job_id not in live


def test_job_that_a_pod_needs_is_not_ended_as_an_orphan(world: World) -> None:
    """A policy allowed the Pod after the audit's last read, and before the cancellation of the job."""
    uid = world.settled_pod()
    (job,) = world.live_jobs(uid)
    key = PlaceholderKey.parse(job.admin_comment)
    assert key is not None
    assert world.tell_and_settle(OrphanFound(key, job.id)) == []
    assert world.live_jobs(uid) == [job]


def test_pod_bound_during_replacement_gets_its_forgotten_job_back(world: World) -> None:
    uid = world.settled_pod()
    world.begin_binding(uid)
    world.pass_time(world.rules.unbound_deadline + 1)
    assert world.state_of(uid) is State.REPLACING
    world.forget_the_job(uid)
    world.finish_binding(uid)
    world.carry_out_all()
    world.poll_until_lost()
    world.wait(1.0)
    world.pass_time(1.0)
    world.settle()
    assert world.state_of(uid) is State.BOUND
    (again,) = world.live_jobs(uid)
    assert again.required_nodes == (world.pods[uid].life.node,)


def test_bound_pod_runs_on_if_another_job_has_taken_its_node(world: World) -> None:
    uid = world.bound_pod()
    taken = replace(world.live_jobs(uid)[0], id=7, admin_comment="")
    world.forget_the_job(uid)
    world.jobs[7] = taken
    for _ in range(world.rules.confirmations):
        world.poll()
    for _ in range(4):
        world.schedule()
        world.wait_and_poll(world.rules.restart_wait + 1)
    (job,) = world.live_jobs(uid)
    assert job.state.pending
    assert [p.cause and p.cause.reason for p in world.ledger.placeholders] == ["SlurmJobLost"]
    world.restart()
    world.poll()
    assert [p.cause and p.cause.reason for p in world.ledger.placeholders] == ["SlurmJobLost"]
    world.end_job(7, "COMPLETED")
    world.schedule()
    world.wait_and_poll(world.rules.reason_interval)
    assert world.live_jobs(uid)[0].state.running
    assert [p.cause for p in world.ledger.placeholders] == [None]


def test_refusal_of_a_bound_pods_lost_job_is_reported_once(world: World) -> None:
    """The extender reports by an Event, because the Pod runs."""
    uid = world.bound_pod()
    world.forget_the_job(uid)
    world.poll_until_lost()
    (told,) = refused_by_slurm(world, Submit, 20)
    assert "Invalid account" in sentence(told.cause)
    assert told.event_alone
    assert world.state_of(uid) is State.BOUND
    world.settle()
    assert world.live_jobs(uid)


def test_refused_change_of_a_queued_job_is_reported_once(world: World) -> None:
    uid = world.queued_pod()
    world.tell(ClusterObserved(CORDONED))
    world.pass_time(1.0)
    assert refused_by_slurm(world, ExcludeNodes, 3) == []  # after few refusals, the cause is not certain
    (told,) = refused_by_slurm(world, ExcludeNodes, 20)
    assert "Invalid account" in sentence(told.cause)
    assert (told.event_alone, told.job_id) == (False, world.job_id_of(uid))


def test_forgotten_job_that_comes_back_is_kept(world: World) -> None:
    uid = world.bound_pod()
    job = world.live_jobs(uid)[0]
    world.forget_the_job(uid)
    world.poll_until_lost()
    world.jobs[job.id] = job  # the job comes back after the poll
    assert kinds(world.settle()) == [Submit]
    world.wait_and_poll(1.1)
    assert world.live_jobs(uid) == [job]
    assert world.wait_and_poll(100.0) == []


def test_job_of_a_pod_whose_node_is_gone_is_not_requested(world: World) -> None:
    uid = world.bound_pod()
    world.forget_the_job(uid)
    world.tell(ClusterObserved(replace(VIEW, nodes={})))
    for _ in range(10):
        assert world.poll() == []
        world.pass_time(5.0)
    assert world.state_of(uid) is State.BOUND


def test_a_queued_job_that_slurm_forgot_is_submitted_again_under_its_id(world: World) -> None:
    uid = world.queued_pod()
    forgotten = world.jobs.pop(world.job_id_of(uid))
    for _ in range(world.rules.confirmations):
        assert not world.live_jobs(uid)
        world.poll()
    assert world.job_id_of(uid) == forgotten.id


def test_a_cancelled_job_that_comes_back_is_cancelled_again(world: World) -> None:
    uid = world.bound_pod()
    world.save()
    world.remove_and_settle(uid)
    world.poll()
    assert not world.live_jobs(uid)
    world.kill_slurmctld()
    assert world.live_jobs(uid)
    world.wait_and_poll(1.0)
    assert not world.live_jobs(uid)


def test_lost_job_that_comes_back_after_its_pod_was_placed_again_is_cancelled(world: World) -> None:
    uid = world.settled_pod()
    (lost,) = world.live_jobs(uid)
    world.forget_the_job(uid)
    for _ in range(world.rules.confirmations):
        world.poll()
    world.settle()
    (placed,) = world.live_jobs(uid)
    assert placed.id != lost.id
    world.jobs[lost.id] = lost
    world.revived.add(lost.id)
    world.pass_time(1.0)
    for _ in range(2):
        world.poll()
    assert world.live_jobs(uid) == [world.jobs[placed.id]]


def test_a_tombstone_is_dropped_after_its_time(world: World) -> None:
    uid = world.bound_pod()
    world.remove_and_settle(uid)
    world.poll()
    assert world.state_of(uid) is State.DONE
    world.pass_time(world.rules.tombstone + 1)
    assert list(world.ledger.placeholders) == []
