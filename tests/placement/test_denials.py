"""Tests of jobs that a job_submit plugin refuses with slurm.ERROR. Slurm's reply has no reason, and
Slurm makes no job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.sentences import sentence
from extender.record.events import Effect, Failure, ReadJob, Remedy, ReportWaiting, Submit
from extender.record.states import State
from slurm_client.job_state import JobState
from tests.placement.ledger_world import LOST, World, of_kind

MINUTE = 60


def live_on(world: World, seconds: int) -> list[Effect]:
    """Lets time pass, and carries out all effects. Returns the effects."""
    return world.settle() + world.wait(1.0, times=seconds)


def submissions(done: list[Effect]) -> int:
    return sum(isinstance(effect, Submit) for effect in done)


def denied_pod(world: World) -> str:
    uid = world.create_pod()
    world.denied.add(uid)
    return uid


@pytest.fixture
def denied(world: World) -> str:
    return denied_pod(world)


def test_pod_is_invalid_after_six_refusals_of_its_job(world: World, denied: str) -> None:
    done = live_on(world, 10)
    assert world.state_of(denied) is State.INVALID
    done += live_on(world, MINUTE - 10)
    assert world.state_of(denied) is State.INVALID
    assert submissions(done) == 6
    told = [effect.cause for effect in done if isinstance(effect, ReportWaiting)][-1]
    assert told.reason == "Invalid"
    assert sentence(told) == "Slurm refuses the job: Unspecified error"


def test_short_refusal_does_not_make_the_pod_invalid(world: World, denied: str) -> None:
    live_on(world, 1)
    world.denied.clear()
    live_on(world, 5)
    assert world.state_of(denied) is State.ALLOCATED
    assert len(world.live_jobs(denied)) == 1


def test_changed_pod_gets_six_submissions_again(world: World, denied: str) -> None:
    live_on(world, MINUTE)
    world.edit(denied)
    world.denied.add(denied)
    assert submissions(live_on(world, MINUTE)) == 6
    assert world.state_of(denied) is State.INVALID
    world.edit(denied)
    live_on(world, 1)
    assert world.state_of(denied) is State.ALLOCATED


def test_refused_pod_is_retried_and_keeps_its_cause(world: World, denied: str) -> None:
    live_on(world, MINUTE)
    done = live_on(world, 2 * MINUTE)
    assert submissions(done) == 1
    told = {sentence(effect.cause) for effect in done if isinstance(effect, ReportWaiting)}
    assert told == {"Slurm refuses the job: Unspecified error"}
    assert world.state_of(denied) is State.INVALID


@pytest.mark.parametrize("immediate", [True, False])
def test_job_made_without_a_reply_is_found_before_a_refusal(immediate: bool) -> None:
    """Slurm calls the plugin before Slurm checks for a duplicate id. So the reply does not show if Slurm
    already has the job."""
    world = World()
    uid, submit = world.pod_and_submission()
    submit = replace(submit, immediate=immediate)
    world.do(submit)
    world.finish(submit, LOST)
    world.denied.add(uid)
    live_on(world, 20)
    assert len(world.live_jobs(uid)) == 1
    assert world.record(uid).job.id == submit.job_id
    assert world.state_of(uid) in (State.QUEUED, State.ALLOCATED)


def test_pod_is_not_refused_before_slurm_reports_that_no_job_exists(world: World, denied: str) -> None:
    world.hear()
    for _ in range(200):
        world.pass_time(1.0)
        while world.effects:
            effect = world.effects.pop(0)
            world.finish(effect, LOST if isinstance(effect, ReadJob) else world.do(effect))
    assert world.state_of(denied) is State.SUBMITTING


def test_duplicate_id_error_without_a_job_counts_as_a_refusal(world: World) -> None:
    """A plugin may return any error number of Slurm, even the number for a duplicate id."""
    uid = world.create_pod()
    world.hear()
    sent = 0
    for _ in range(MINUTE):
        while world.effects:
            effect = world.effects.pop(0)
            sent += isinstance(effect, Submit)
            taken = Failure(Remedy.ID_TAKEN, "Duplicate job id")
            world.finish(effect, taken if isinstance(effect, Submit) else world.do(effect))
        world.pass_time(1.0)
    assert world.state_of(uid) is State.INVALID
    assert sent == 6


def test_running_pod_reports_that_its_lost_job_is_refused(world: World) -> None:
    uid = world.create_pod()
    world.catch_up()
    assert world.state_of(uid) is State.BOUND
    world.jobs.clear()
    world.denied.add(uid)
    told = [effect.cause for effect in of_kind(world.outlast(MINUTE), ReportWaiting)]
    assert told[-1].reason == "RejectedBySlurm"
    assert "Unspecified error" in sentence(told[-1])
    assert uid in world.pods
    assert world.state_of(uid) is State.BOUND


def test_each_of_many_denied_pods_costs_six_submissions(world: World) -> None:
    for _ in range(50):
        denied_pod(world)
    done = live_on(world, MINUTE)
    assert submissions(done) == 300
    assert all(p.state is State.INVALID for p in world.ledger.placeholders)
    assert JobState("PENDING") not in {job.state for job in world.jobs.values()}
