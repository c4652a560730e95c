"""Tests of the ledger if another job has the id of the Pod's job, or if the reply to a request is
lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.record.events import CancelJob, EvictPod, Failure, ReadJob, Remedy, Submit, WriteAttempt
from extender.record.states import State
from slurm_client.job_state import JobState
from slurm_client.model import Job
from tests.builders import placeholder_job, pod
from tests.placement.ledger_world import REQUEST, World, kinds, of_kind


def give_the_id_to_a_stranger(world: World, effect: Submit, **changes: Any) -> Job:
    """Gives the id of the Pod's job to a job of another owner, and returns this job."""
    other = World()
    other.do(effect)
    theirs = replace(other.jobs[effect.job_id], name="theirs", admin_comment="somebody else's")
    world.jobs[effect.job_id] = replace(theirs, **changes)
    return world.jobs[effect.job_id]


def submit_and_lose_the_answer(world: World) -> tuple[str, Submit]:
    """Submits a job with a lost reply. The ledger does not know whether Slurm has accepted the job."""
    uid, effect = world.pod_and_submission()
    world.finish(effect, Failure(Remedy.AGAIN, "timeout"))
    return uid, effect


def a_rival_of(world: World) -> None:
    """Makes another replica the leader. From then, `world` acts as the deposed replica."""
    world.fail_over()
    world.swap()


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_pod_requests_the_next_job_id_at_once_if_its_id_is_taken(world: World, state: str) -> None:
    """A request that is not immediate would leave the Pod in Slurm's queue, and all later Pods would
    queue behind this Pod."""
    uid = world.create_pod()
    world.hear()
    (first,) = of_kind(world.effects, Submit)
    stranger = give_the_id_to_a_stranger(world, first, state=JobState(state), nodes=())
    assert [each.immediate for each in of_kind(world.settle(), Submit)] == [True, True]
    assert world.state_of(uid) is State.ALLOCATED
    assert world.jobs[first.job_id] == stranger
    assert world.job_id_of(uid) != first.job_id


@pytest.mark.parametrize("problem", [Remedy.ID_TAKEN, Remedy.AGAIN])
def test_repeated_submission_does_not_overtake_a_queued_pod(world: World, problem: Remedy) -> None:
    uid, first = world.pod_and_submission()
    other = world.queued_pod()
    assert world.state_of(other) is State.QUEUED
    if problem is Remedy.ID_TAKEN:
        give_the_id_to_a_stranger(world, first)
    world.finish(first, Failure(problem, "for whatever reason"))
    world.pass_time(10.0)
    submitted = [e for e in world.settle() if isinstance(e, Submit) and e.uid == uid]
    assert [e.immediate for e in submitted] == [False]


def test_job_ended_by_slurmctld_for_a_lost_reply_is_requested_again(world: World) -> None:
    uid, submit = world.pod_and_submission()
    world.do(submit)
    world.fail_unanswered(submit)
    world.finish(submit, Failure(Remedy.AGAIN, "timeout"))
    world.wait(10.0)
    assert world.state_of(uid) is State.ALLOCATED
    assert len(world.live_jobs(uid)) == 1


def test_deleted_pod_does_not_cancel_another_job_under_its_id(world: World) -> None:
    uid, effect = submit_and_lose_the_answer(world)
    stranger = give_the_id_to_a_stranger(world, effect)
    world.remove_pod(uid)
    world.outlast(20)
    assert world.jobs[effect.job_id] == stranger
    assert world.state_of(uid) is State.DONE
    world.outlast(60)
    assert list(world.ledger.placeholders) == []
    assert world.jobs[effect.job_id] == stranger


def test_edited_pod_does_not_cancel_another_job_under_its_id(world: World) -> None:
    uid, effect = submit_and_lose_the_answer(world)
    stranger = give_the_id_to_a_stranger(world, effect)
    world.edit(uid)
    world.outlast(10)
    assert world.jobs[effect.job_id] == stranger
    assert world.job_id_of(uid) != effect.job_id
    assert len(world.live_jobs(uid)) == 1


@pytest.mark.parametrize("arrives", ["at once", "late"])
def test_job_made_for_a_deleted_pod_is_cancelled(world: World, arrives: str) -> None:
    uid, effect = submit_and_lose_the_answer(world)
    world.remove_pod(uid)
    if arrives == "late":
        world.outlast(2)
    world.do(effect)
    world.outlast(20)
    assert world.jobs[effect.job_id].state.base == "CANCELLED"


def test_job_known_to_be_the_pods_own_is_cancelled_without_a_read(world: World) -> None:
    """Thousands of jobs may be cancelled at the same time, and a read of each job would take too
    long."""
    uid = world.bound_pod()
    assert kinds(world.remove_and_settle(uid)) == [CancelJob]
    uid = world.bound_pod()
    world.restart()  # until the job is read, only the Pod names the job
    assert ReadJob in kinds(world.wait(world.rules.recovery_read_spread))
    assert kinds(world.remove_and_settle(uid)) == [CancelJob]


def test_cancelled_orphan_job_keeps_the_comment_of_its_author(world: World) -> None:
    asked = replace(REQUEST, job=replace(REQUEST.job, comment="run 7"))
    uid = world.settled_pod(request=asked)
    (job,) = world.live_jobs(uid)
    del world.pods[uid]
    world.restart_and_settle()
    assert world.jobs[job.id].comment == "run 7; Pod no longer needs the job"


def test_queued_pod_requests_the_next_id_if_its_id_is_used_up(world: World) -> None:
    """slurmctld forgot the queued job, and a deposed leader then requested an immediate job under the
    same id. The immediate job failed, so the id is used up."""
    uid = world.queued_pod()
    job = world.live_jobs(uid)[0]
    world.jobs[job.id] = replace(job, state=JobState("FAILED"))
    done = [*world.poll(), *world.settle()]
    assert EvictPod not in kinds(done)
    (again,) = world.live_jobs(uid)
    assert again.id != job.id
    assert world.state_of(uid) is State.QUEUED


def test_bound_pod_requests_the_next_id_if_its_id_is_used_up(world: World) -> None:
    uid = world.bound_pod()
    job, node = world.live_jobs(uid)[0], world.pods[uid].life.node
    world.jobs[job.id] = replace(job, state=JobState("FAILED"), nodes=())
    world.poll()
    world.schedule()
    world.wait_and_poll(1.1)
    (again,) = world.live_jobs(uid)
    assert (again.id != job.id, again.nodes) == (True, (node,))
    assert world.state_of(uid) is State.BOUND
    assert world.pods[uid].scheduling.job_id == again.id  # people use this id for scancel
    assert world.poll() == world.settle() == []
    world.change_pod(uid, job_id=job.id)  # as if the ledger had not written the new id
    world.restart()
    world.wait(world.rules.recovery_read_spread)
    assert world.live_jobs(uid) == [again]
    assert (world.state_of(uid), world.pods[uid].scheduling.job_id) == (State.BOUND, again.id)


@pytest.mark.parametrize("base", ["RUNNING", "PENDING", "CANCELLED"])
@pytest.mark.parametrize("nodes", [("n1",), ("n2",)])
def test_bound_pod_whose_job_id_is_taken_runs_on(base: str, nodes: tuple[str, ...]) -> None:
    """Slurm forgot the Pod's job. The extender computes ids from the Pods, so two Pods may have the same
    id."""
    world = World()
    uid = world.bound_pod()
    job_id = world.forget_the_job(uid)
    world.poll_until_lost()
    elses = replace(placeholder_job(pod(uid="else")), id=job_id, state=JobState(base), nodes=nodes)
    world.jobs[job_id] = elses
    world.poll()
    world.wait(1.1)
    world.poll()
    assert uid in world.pods
    assert world.state_of(uid) is State.BOUND
    (again,) = world.live_jobs(uid)
    assert (again.id != job_id, again.required_nodes) == (True, ("n1",))
    assert world.jobs[job_id] == elses


def test_forbidden_pod_placed_by_a_deposed_leader_keeps_its_job(world: World) -> None:
    a_rival_of(world)
    uid = world.settled_pod()
    world.edit(uid, forbidden=True)
    world.bind(uid)
    world.swap()
    world.other = None
    world.settle()
    assert world.state_of(uid) is State.BOUND
    assert len(world.live_jobs(uid)) == 1


def test_leader_follows_a_later_attempt_bound_by_a_deposed_leader(world: World) -> None:
    uid = world.settled_pod()
    a_rival_of(world)
    world.refuse(uid, offers=True)
    world.settle()
    world.poll()
    world.bind(uid)
    world.swap()
    world.other = None
    world.settle()
    world.poll()
    (job,) = world.live_jobs(uid)
    assert (world.state_of(uid), world.job_id_of(uid)) == (State.BOUND, job.id)


def test_attempt_numbered_by_another_replica_is_not_numbered_again(world: World) -> None:
    uid = world.settled_pod()
    world.refuse(uid, offers=True)
    world.hear_all()
    look = world.effects.pop(0)
    world.finish(look, 0.0)
    write = world.take(WriteAttempt)
    world.change_pod(uid, attempt=2, feasible_nodes=None)
    world.finish(write, Failure(Remedy.FRESHER, "the object has been modified"))
    assert WriteAttempt not in kinds(world.settle())
