"""What a job_submit plugin refuses (slurm.ERROR): Slurm's answer says nothing, and there is no job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.sentences import sentence
from extender.record.events import Effect, Failure, ReadJob, Remedy, ReportWaiting, Submit
from extender.record.states import State
from slurm_client.model import JobState
from tests.placement.ledger_world import LOST, World

MINUTE = 60


def live_on(world: World, seconds: int) -> list[Effect]:
    """So much time passes in calm weather; returns what was done."""
    done = world.settle()
    for _ in range(seconds):
        world.pass_time(1.0)
        done += world.settle()
    return done


def submissions(done: list[Effect]) -> int:
    return sum(isinstance(effect, Submit) for effect in done)


def denied_pod(world: World) -> str:
    uid = world.create_pod()
    world.denied.add(uid)
    return uid


def test_a_pod_whose_job_is_refused_again_and_again_is_refused_in_slurms_words(world: World) -> None:
    uid = denied_pod(world)
    done = live_on(world, MINUTE)
    assert world.state_of(uid) is State.INVALID
    assert submissions(done) == 6
    told = [effect.cause for effect in done if isinstance(effect, ReportWaiting)][-1]
    assert told.reason == "Invalid"
    assert sentence(told) == "Slurm refuses the job: Unspecified error"


def test_it_is_told_within_some_seconds(world: World) -> None:
    uid = denied_pod(world)
    live_on(world, 10)
    assert world.state_of(uid) is State.INVALID


def test_a_refusal_that_does_not_last_is_none(world: World) -> None:
    uid = denied_pod(world)
    live_on(world, 1)
    world.denied.clear()
    live_on(world, 5)
    assert world.state_of(uid) is State.ALLOCATED
    assert len(world.live_jobs(uid)) == 1


def test_a_pod_that_is_changed_is_asked_for_again_as_if_for_the_first_time(world: World) -> None:
    uid = denied_pod(world)
    live_on(world, MINUTE)
    world.edit(uid)
    world.denied.add(uid)
    assert submissions(live_on(world, MINUTE)) == 6
    assert world.state_of(uid) is State.INVALID
    world.edit(uid)
    live_on(world, 1)
    assert world.state_of(uid) is State.ALLOCATED


def test_a_refused_pod_is_asked_for_once_more_each_time_and_told_no_other_cause(world: World) -> None:
    uid = denied_pod(world)
    live_on(world, MINUTE)
    done = live_on(world, 2 * MINUTE)
    assert submissions(done) == 1
    told = {sentence(effect.cause) for effect in done if isinstance(effect, ReportWaiting)}
    assert told == {"Slurm refuses the job: Unspecified error"}
    assert world.state_of(uid) is State.INVALID


@pytest.mark.parametrize("immediate", [True, False])
def test_a_job_that_was_made_all_the_same_is_found_before_a_refusal(immediate: bool) -> None:
    """The plugin is asked before Slurm looks for a duplicate: its answer says nothing of that."""
    world = World()
    uid = world.create_pod()
    world.hear()
    submit = world.take(Submit)
    submit = replace(submit, immediate=immediate)
    world.do(submit)
    world.finish(submit, LOST)
    world.denied.add(uid)
    live_on(world, 20)
    assert len(world.live_jobs(uid)) == 1
    assert world.record(uid).job.id == submit.job_id
    assert world.state_of(uid) in (State.QUEUED, State.ALLOCATED)


def test_nothing_is_refused_while_slurm_does_not_say_that_there_is_no_job(world: World) -> None:
    uid = denied_pod(world)
    world.hear()
    for _ in range(200):
        world.pass_time(1.0)
        while world.effects:
            effect = world.effects.pop(0)
            world.finish(effect, LOST if isinstance(effect, ReadJob) else world.do(effect))
    assert world.state_of(uid) is State.SUBMITTING


def test_an_id_that_is_said_to_be_taken_by_nothing_is_a_refusal_too(world: World) -> None:
    """A plugin may return any number of Slurm's, this one as well."""
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


def test_the_author_of_a_pod_that_runs_is_told_that_its_lost_job_is_refused(world: World) -> None:
    uid = world.create_pod()
    world.catch_up()
    assert world.state_of(uid) is State.BOUND
    world.jobs.clear()
    world.denied.add(uid)
    done: list[Effect] = []
    for _ in range(MINUTE):
        world.pass_time(1.0)
        done += world.poll()
    told = [effect.cause for effect in done if isinstance(effect, ReportWaiting)]
    assert told[-1].reason == "RejectedBySlurm"
    assert "Unspecified error" in sentence(told[-1])
    assert uid in world.pods
    assert world.state_of(uid) is State.BOUND


def test_a_job_in_line_behind_others_of_the_same_fate_costs_few_submissions(world: World) -> None:
    for _ in range(50):
        denied_pod(world)
    done = live_on(world, MINUTE)
    assert submissions(done) == 300
    assert all(p.state is State.INVALID for p in world.ledger.placeholders)
    assert JobState("PENDING") not in {job.state for job in world.jobs.values()}
