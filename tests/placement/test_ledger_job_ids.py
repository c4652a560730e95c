"""What the ledger does where a job's id is another's, or its answer was lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.record.events import CancelJob, EvictPod, Failure, ReadJob, Remedy, Submit, WriteAttempt
from extender.record.states import State
from slurm_client.model import JobState
from tests.builders import changed, placeholder_job, pod
from tests.placement.ledger_steps import (
    a_rival_of,
    bound_pod,
    forget_the_job,
    job_id_of,
    kinds,
    outlast,
    pod_that_finds_no_room,
    poll,
    settle,
    settle_news,
    state_of,
    stranger_of,
    submit_and_lose_the_answer,
)
from tests.placement.ledger_world import REQUEST, World


def test_another_jobs_id_is_left_to_it() -> None:
    world = World()
    uid = world.create_pod()
    world.hear()
    effect = world.effects[0]
    assert isinstance(effect, Submit)
    stranger = stranger_of(effect)
    world.jobs[effect.job_id] = stranger
    settle(world)
    assert world.jobs[effect.job_id] == stranger
    assert job_id_of(world, uid) != effect.job_id


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_another_jobs_id_sends_nobody_into_the_queue(state: str) -> None:
    """One Pod that queues is enough for all after it to queue behind it. Whatever became of that job."""
    world = World()
    uid = world.create_pod()
    world.hear()
    effect = world.effects[0]
    assert isinstance(effect, Submit)
    job = replace(stranger_of(effect), state=JobState(state), nodes=())
    world.jobs[effect.job_id] = job
    submitted = [e for e in settle(world) if isinstance(e, Submit)]
    assert [e.immediate for e in submitted] == [True, True]
    assert state_of(world, uid) is State.ALLOCATED


@pytest.mark.parametrize("trouble", [Remedy.ID_TAKEN, Remedy.AGAIN])
def test_who_asks_again_overtakes_nobody_who_waits_by_then(trouble: Remedy) -> None:
    world = World()
    uid = world.create_pod()
    world.hear()
    first = world.effects.pop(0)
    assert isinstance(first, Submit)
    other = pod_that_finds_no_room(world)
    assert state_of(world, other) is State.QUEUED
    if trouble is Remedy.ID_TAKEN:
        stranger = stranger_of(first)
        world.jobs[first.job_id] = stranger
    world.finish(first, Failure(trouble, "for whatever reason"))
    world.pass_time(10.0)
    submitted = [e for e in settle(world) if isinstance(e, Submit) and e.uid == uid]
    assert [e.immediate for e in submitted] == [False]


def test_a_job_that_slurmctld_ended_since_nobody_took_its_answer_is_asked_for_again() -> None:
    world = World()
    uid = world.create_pod()
    world.hear()
    submit = world.effects.pop(0)
    assert isinstance(submit, Submit)
    world.do(submit)
    world.fail_unanswered(submit)
    world.finish(submit, Failure(Remedy.AGAIN, "timeout"))
    world.pass_time(10.0)
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED
    assert len(world.live_jobs(uid)) == 1


def test_another_jobs_id_is_left_to_it_when_the_pod_is_deleted() -> None:
    world = World()
    uid = world.create_pod()
    effect = submit_and_lose_the_answer(world, uid)
    stranger = stranger_of(effect)
    world.jobs[effect.job_id] = stranger
    world.remove_pod(uid)
    outlast(world, 20)
    assert world.jobs[effect.job_id] == stranger
    assert state_of(world, uid) is State.DONE
    outlast(world, 60)
    assert list(world.ledger.placeholders) == []
    assert world.jobs[effect.job_id] == stranger


def test_another_jobs_id_is_left_to_it_when_the_pod_is_edited() -> None:
    world = World()
    uid = world.create_pod()
    effect = submit_and_lose_the_answer(world, uid)
    stranger = stranger_of(effect)
    world.jobs[effect.job_id] = stranger
    world.edit(uid)
    outlast(world, 10)
    assert world.jobs[effect.job_id] == stranger
    assert job_id_of(world, uid) != effect.job_id
    assert len(world.live_jobs(uid)) == 1


@pytest.mark.parametrize("arrives", ["at once", "late"])
def test_a_job_that_was_made_for_a_pod_that_is_deleted_is_cancelled(arrives: str) -> None:
    world = World()
    uid = world.create_pod()
    effect = submit_and_lose_the_answer(world, uid)
    world.remove_pod(uid)
    if arrives == "late":
        outlast(world, 2)
    world.do(effect)
    outlast(world, 20)
    assert world.jobs[effect.job_id].state.base == "CANCELLED"


def test_a_job_that_is_known_to_be_the_pods_own_is_not_read_before_it_is_cancelled() -> None:
    """Thousands may be, at once."""
    world = World()
    uid = bound_pod(world)
    world.remove_pod(uid)
    assert kinds(settle(world)) == [CancelJob]
    uid = bound_pod(world)
    world.restart()  # then only the Pod says which it is, until the job is read
    world.pass_time(world.rules.verified)
    assert ReadJob in kinds(settle(world))
    world.remove_pod(uid)
    assert kinds(settle(world)) == [CancelJob]


def test_what_an_orphans_author_wrote_stays_in_its_comment() -> None:
    world = World()
    asked = replace(REQUEST, job=replace(REQUEST.job, comment="run 7"))
    uid = world.create_pod(request=asked)
    settle(world)
    (job,) = world.live_jobs(uid)
    del world.pods[uid]
    world.restart()
    settle(world)
    assert world.jobs[job.id].comment == "run 7; Pod does not need it any more"


def test_an_id_that_another_replica_used_up_is_no_end_of_the_workload() -> None:
    """slurmctld forgot the queued job, and a deposed leader asked for it at once, in vain."""
    world = World()
    uid = pod_that_finds_no_room(world)
    job = world.live_jobs(uid)[0]
    world.jobs[job.id] = replace(job, state=JobState("FAILED"))
    done = [*poll(world), *settle(world)]
    assert EvictPod not in kinds(done)
    (again,) = world.live_jobs(uid)
    assert again.id != job.id
    assert state_of(world, uid) is State.QUEUED


def test_the_used_up_id_of_a_bound_pod_is_asked_for_again_as_the_next_try() -> None:
    world = World()
    uid = bound_pod(world)
    job, node = world.live_jobs(uid)[0], world.pods[uid].life.node
    world.jobs[job.id] = replace(job, state=JobState("FAILED"), nodes=())
    poll(world)
    world.schedule()
    world.pass_time(1.1)
    poll(world)
    (again,) = world.live_jobs(uid)
    assert (again.id != job.id, again.nodes) == (True, (node,))
    assert state_of(world, uid) is State.BOUND
    assert world.pods[uid].scheduling.job_id == again.id  # for people, who cancel what a Pod names
    assert poll(world) == settle(world) == []
    world.write(changed(world.pods[uid], job_id=job.id))  # as if nobody had come to it
    world.restart()
    world.pass_time(world.rules.verified)
    settle(world)
    assert world.live_jobs(uid) == [again]
    assert (state_of(world, uid), world.pods[uid].scheduling.job_id) == (State.BOUND, again.id)


@pytest.mark.parametrize("base", ["RUNNING", "PENDING", "CANCELLED"])
@pytest.mark.parametrize("nodes", [("n1",), ("n2",)])
def test_a_bound_pod_whose_id_is_anothers_by_now_gets_another_job_and_runs_on(
    base: str, nodes: tuple[str, ...]
) -> None:
    """Slurm forgot its own. Ids are computed, and two Pods' may be the same."""
    world = World()
    uid = bound_pod(world)
    job_id = forget_the_job(world, uid)
    for _ in range(world.rules.confirmations):
        world.ask()
        world.answer()
    elses = replace(placeholder_job(pod(uid="else")), id=job_id, state=JobState(base), nodes=nodes)
    world.jobs[job_id] = elses
    poll(world)
    world.pass_time(1.1)
    settle(world)
    poll(world)
    assert uid in world.pods
    assert state_of(world, uid) is State.BOUND
    (again,) = world.live_jobs(uid)
    assert (again.id != job_id, again.required_nodes) == (True, ("n1",))
    assert world.jobs[job_id] == elses


def test_a_pod_that_a_deposed_leader_placed_is_watched_though_it_is_forbidden_by_now() -> None:
    world = World()
    a_rival_of(world)
    uid = world.create_pod()
    settle(world)
    world.edit(uid, forbidden=True)
    world.bind(uid)
    world.swap()
    world.other = None
    settle(world)
    assert state_of(world, uid) is State.BOUND
    assert len(world.live_jobs(uid)) == 1


def test_a_later_attempt_that_a_deposed_leader_has_bound_is_watched() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    a_rival_of(world)
    world.refuse(uid, offers=True)
    settle(world)
    poll(world)
    world.bind(uid)
    world.swap()
    world.other = None
    settle(world)
    poll(world)
    (job,) = world.live_jobs(uid)
    assert (state_of(world, uid), job_id_of(world, uid)) == (State.BOUND, job.id)


def test_an_attempt_that_another_replica_has_numbered_is_not_numbered_again() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.refuse(uid, offers=True)
    settle_news(world)
    look = world.effects.pop(0)
    world.finish(look, 0.0)
    (write,) = world.effects
    assert isinstance(write, WriteAttempt)
    world.acting.effects = []
    world.write(changed(world.pods[uid], attempt=2, feasible_nodes=None))
    world.finish(write, Failure(Remedy.FRESHER, "the object has been modified"))
    assert WriteAttempt not in kinds(settle(world))
