"""Where a placeholder stands, told from a Pod and the jobs found under its ids alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product

import pytest

from extender.explain.sentences import sentence
from extender.placement.recovery import possible_ids, recovered, to_read
from extender.pod_request.pod import Pod
from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.model import Job, JobState
from tests.builders import RULES, kube_node, moment, placeholder_job, pod
from wellknown.allocation import Allocation
from wellknown.job_key import ADOPTED_ATTEMPT, TRIES_AT_RECOVERY, JobIdRange, PlaceholderKey
from wellknown.names import ATTEMPT, JOB_ID, NODE

AT = moment(kube_node("n1"), kube_node("n2"))
NATIVE = Job(4711, JobState("RUNNING"), name="train.sh", nodes=("n1",))
GATED = pod(uid="u1", annotations={ATTEMPT: "1"})
SECOND = pod(uid="u1", annotations={ATTEMPT: "2"})


def find(of: Pod, *jobs: Job) -> tuple[Placeholder | None, tuple[Job, ...]]:
    record, stray = recovered((of,), jobs, AT)
    return record, tuple(job for job, _ in stray)


def record_of(of: Pod, *jobs: Job) -> Placeholder:
    """The record, where no job is to be ended."""
    record, stray = find(of, *jobs)
    assert record is not None
    assert stray == ()
    return record


def failed_before_start(of: Pod, attempt_try: int, attempt: int = 1) -> Job:
    """What an immediate allocation that was refused leaves behind."""
    return placeholder_job(of, "FAILED", attempt=attempt, attempt_try=attempt_try)


def bound(job: Job, *, node: str = "n1", says: str | None = None, attempt: int = 1) -> Pod:
    """A Pod on a Node, whose annotations name a job (and perhaps another Node)."""
    annotations = {ATTEMPT: str(attempt), JOB_ID: str(job.id), NODE: says or node}
    return pod(uid="u1", gates=(), node=node, phase="Running", annotations=annotations)


# Pods that wait


def test_a_pod_without_jobs_waits_for_its_turn() -> None:
    record = record_of(GATED)
    assert (record.state, record.attempt, record.job.asked.attempt_try) == (State.SEEN, 1, 0)
    assert (record.job.id, record.first_seen, record.since) == (None, AT.now, AT.now)


def test_a_pod_goes_on_from_the_attempt_that_it_carries() -> None:
    record = record_of(SECOND)
    assert (record.state, record.attempt, record.job.asked.attempt_try) == (State.SEEN, 2, 0)


def test_after_used_up_ids_the_next_try_is_made() -> None:
    record = record_of(GATED, failed_before_start(GATED, 0), failed_before_start(GATED, 1))
    assert (record.state, record.job.asked.attempt_try) == (State.SEEN, 2)


def test_ids_used_up_by_an_earlier_attempt_are_no_try_of_this_one() -> None:
    record = record_of(SECOND, failed_before_start(SECOND, 0, attempt=1))
    assert (record.attempt, record.job.asked.attempt_try) == (2, 0)


def test_an_earlier_attempts_ended_job_means_nothing() -> None:
    record = record_of(SECOND, placeholder_job(SECOND, "CANCELLED", attempt=1, node="n1"))
    assert (record.state, record.attempt, record.job.asked.attempt_try) == (State.SEEN, 2, 0)


def test_a_waiting_job_is_waited_for() -> None:
    job = placeholder_job(GATED, "PENDING")
    record = record_of(GATED, job)
    assert (record.state, record.job.id, record.job.asked.attempt_try) == (State.QUEUED, job.id, 0)


def test_a_waiting_job_of_a_later_try_is_waited_for() -> None:
    job = placeholder_job(GATED, "PENDING", attempt_try=1)
    record = record_of(GATED, failed_before_start(GATED, 0), job)
    assert (record.state, record.job.id, record.job.asked.attempt_try) == (State.QUEUED, job.id, 1)


@pytest.mark.parametrize(
    "state", ["RUNNING,CONFIGURING", "SUSPENDED", "RUNNING,COMPLETING", "UNHEARD-OF"]
)
def test_a_live_job_that_does_not_run_yet_is_waited_for(state: str) -> None:
    assert record_of(GATED, placeholder_job(GATED, state, node="n1")).state is State.QUEUED


def test_a_running_job_is_an_allocation_that_has_to_be_written() -> None:
    job = placeholder_job(GATED, node="n2", gres=("gpu:2(IDX:0-1)",))
    record = record_of(GATED, job)
    assert (record.state, record.members[0].write.done) == (State.ALLOCATED, False)
    assert record.members[0].slot == Allocation(job.id, "n2", "gpu:2(IDX:0-1)")


def test_a_running_job_on_a_node_that_no_node_stands_for_is_given_back() -> None:
    record = record_of(GATED, placeholder_job(GATED, node="native-01"))
    assert record.state is State.REPLACING
    assert record.job.id is not None
    assert not record.job.over


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT", "COMPLETED", "DEADLINE"])
def test_a_job_that_ended_ends_its_pod(state: str) -> None:
    job = replace(placeholder_job(GATED, state, node="n1"), external=True)
    record = record_of(GATED, job)
    assert (record.state, record.job.over) == (State.EVICTING, True)
    assert record.cause is not None
    assert str(job.id) in sentence(record.cause)


def test_a_job_that_its_slurmd_did_not_start_is_replaced() -> None:
    record = record_of(GATED, placeholder_job(GATED, "CANCELLED", node="n1"))
    assert (record.state, record.job.over) == (State.REPLACING, True)


@pytest.mark.parametrize("state", ["PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "FAILED"])
def test_a_job_that_slurm_took_away_is_replaced(state: str) -> None:
    """As it is when a live ledger hears of it: a Pod that has not started is placed again."""
    record = record_of(GATED, placeholder_job(GATED, state, node="n1"))
    assert (record.state, record.job.over) == (State.REPLACING, True)


def test_an_ended_job_counts_and_the_used_up_id_after_it_does_not() -> None:
    ended = placeholder_job(GATED, "CANCELLED", attempt_try=0)
    assert record_of(GATED, ended, failed_before_start(GATED, 1)).state is State.EVICTING


def test_a_live_job_counts_before_an_ended_one() -> None:
    ended, live = placeholder_job(GATED, "CANCELLED"), placeholder_job(GATED, "PENDING", attempt_try=1)
    record = record_of(GATED, ended, live)
    assert (record.state, record.job.id) == (State.QUEUED, live.id)


def test_the_ungated_pod_of_a_running_job_is_no_different() -> None:
    job = placeholder_job(GATED, node="n1")
    ungated = pod(uid="u1", gates=(), annotations={ATTEMPT: "1", JOB_ID: str(job.id), NODE: "n1"})
    record = record_of(ungated, job)
    assert (record.state, record.members[0].slot) == (State.ALLOCATED, Allocation(job.id, "n1"))


def test_an_old_attempts_live_job_is_ended_before_the_next_begins() -> None:
    old = placeholder_job(SECOND, "PENDING", attempt=1, attempt_try=1)
    record = record_of(SECOND, old)
    assert (record.state, record.job.id, record.attempt) == (State.REPLACING, old.id, 1)
    assert record.members[0].write.done, "the Pod is numbered already"
    assert not record.job.over


# Two live jobs, which only a controller that forgot something can have


def test_of_two_live_jobs_the_running_one_is_kept() -> None:
    waits, runs = placeholder_job(GATED, "PENDING"), placeholder_job(GATED, attempt_try=1, node="n1")
    record, stray = find(GATED, waits, runs)
    assert record is not None
    assert (record.state, record.job.id, stray) == (State.ALLOCATED, runs.id, (waits,))


def test_of_two_attempts_live_jobs_this_attempts_is_kept() -> None:
    """Were it ended by us, its end would be taken for a person's, and evict the Pod."""
    for old_state, state in product(("PENDING", "RUNNING"), repeat=2):
        old = placeholder_job(SECOND, old_state, attempt=1, node="n1")
        job = placeholder_job(SECOND, state, attempt=2, node="n2")
        record, stray = find(SECOND, old, job)
        assert record is not None
        assert (record.job.id, stray) == (job.id, (old,)), (old_state, state)


# Bound Pods


def test_a_bound_pod_whose_job_runs_is_bound() -> None:
    job = placeholder_job(GATED, attempt_try=1, node="n1")
    record = record_of(bound(job), job)
    assert (record.state, record.job.id, record.job.asked.attempt_try) == (State.BOUND, job.id, 1)
    assert record.members[0].slot == Allocation(job.id, "n1")


def test_a_bound_pod_whose_job_ended_is_evicted() -> None:
    job = placeholder_job(GATED, "PREEMPTED", node="n1")
    record = record_of(bound(job), job)
    assert (record.state, record.job.over) == (State.EVICTING, True)
    assert record.cause is not None
    assert record.cause.reason == "SlurmJobPreempted"


def test_a_bound_pod_whose_job_slurm_does_not_know_runs_on() -> None:
    job = placeholder_job(GATED, node="n1", attempt_try=1)
    record = record_of(bound(job))
    assert (record.state, record.job.id) == (State.BOUND, job.id)
    assert str(record.key(RULES.cluster)) == job.admin_comment  # so that it can be asked for again


def test_a_bound_pods_second_live_job_is_ended() -> None:
    job, second = placeholder_job(GATED, node="n1"), placeholder_job(GATED, "PENDING", attempt_try=1)
    record, stray = find(bound(job), job, second)
    assert record is not None
    assert (record.job.id, stray) == (job.id, (second,))


def test_a_pod_that_was_bound_without_us_is_none_of_ours() -> None:
    assert find(pod(uid="u1", gates=(), node="n1")) == (None, ())


def test_a_pod_that_was_a_guest_is_not_ended_by_the_job_from_then() -> None:
    """It has come into scope."""
    job = placeholder_job(GATED, attempt=ADOPTED_ATTEMPT, node="n1")
    assert find(pod(uid="u1", gates=(), node="n1"), job) == (None, (job,))


def test_a_pod_that_another_bound_gives_its_job_back() -> None:
    """The id of a job that waits is on the Pod, an allocation is not."""
    waits = placeholder_job(GATED, "PENDING")
    for on_the_pod in ({}, {JOB_ID: str(waits.id)}):
        hijacked = pod(uid="u1", gates=(), node="n1", annotations=on_the_pod)
        assert find(hijacked, waits) == (None, (waits,)), on_the_pod


def test_a_pod_that_another_bound_elsewhere_gives_its_job_back() -> None:
    runs = placeholder_job(GATED, node="n2")
    assert find(bound(runs, says="n2"), runs) == (None, (runs,))


def test_a_bound_pods_requeued_job_is_still_its_own() -> None:
    """The next poll tells that it waits again, and ends the Pod."""
    requeued = placeholder_job(GATED, "PENDING")
    record = record_of(bound(requeued), requeued)
    assert (record.state, record.job.id) == (State.BOUND, requeued.id)


def test_a_bound_pod_that_is_being_deleted_keeps_its_job_until_it_is_gone() -> None:
    job = placeholder_job(GATED, node="n1")
    annotations = {JOB_ID: str(job.id), NODE: "n1"}
    leaving = pod(uid="u1", gates=(), node="n1", deleting=True, annotations=annotations)
    assert record_of(leaving, job).state is State.BOUND


def test_a_forged_job_id_on_a_bound_pod_is_not_taken_over() -> None:
    """The record's job is cancelled when the Pod goes: it must be ours (invariant I6)."""
    other = placeholder_job(pod(uid="another"), node="n1")
    for foreign in (NATIVE, other):
        for jobs in ((), (foreign,)):
            record, stray = find(bound(foreign), *jobs)
            assert stray == ()
            assert record is None or record.job.id != foreign.id


def test_a_running_pods_job_survives_a_removed_annotation() -> None:
    job = placeholder_job(GATED, node="n1")
    tampered = pod(uid="u1", gates=(), node="n1", phase="Running")
    record = record_of(tampered, job)
    assert (record.state, record.job.id) == (State.BOUND, job.id)


def test_a_changed_node_annotation_does_not_hide_a_running_pods_job() -> None:
    job = placeholder_job(GATED, node="n1")
    record = record_of(bound(job, says="n2"), job)
    assert (record.state, record.job.id) == (State.BOUND, job.id)


ENDED_BEFORE = placeholder_job(GATED, "CANCELLED", node="n2")


def test_a_bound_pod_that_names_a_job_that_has_ended_keeps_the_one_that_runs_where_it_is() -> None:
    runs = placeholder_job(SECOND, attempt=2, node="n1")
    for first in (ENDED_BEFORE, placeholder_job(GATED, "CANCELLED", node="n1")):
        record = record_of(bound(first, attempt=2), first, runs)
        assert (record.state, record.job.id) == (State.BOUND, runs.id)


def test_a_bound_pod_that_names_a_job_that_was_elsewhere_is_evicted_when_its_own_has_ended() -> None:
    own = placeholder_job(SECOND, "TIMEOUT", attempt=2, node="n1")
    record = record_of(bound(ENDED_BEFORE, attempt=2), ENDED_BEFORE, own)
    assert (record.state, record.job.id) == (State.EVICTING, own.id)


def test_a_bound_pod_whose_job_slurm_forgot_is_not_evicted_for_an_earlier_one() -> None:
    forgotten = placeholder_job(SECOND, attempt=2, node="n1")
    for node in ("n1", "n2", None):
        earlier = placeholder_job(GATED, "CANCELLED", node=node)
        record = record_of(bound(forgotten, attempt=2), earlier)
        assert (record.state, record.job.id) == (State.BOUND, forgotten.id)


@pytest.mark.parametrize(("state", "node"), [("RUNNING", "n2"), ("PENDING", None)])
def test_a_bound_pod_whose_job_slurm_forgot_does_not_go_by_an_earlier_one_that_came_back(
    state: str, node: str | None
) -> None:
    """slurmctld was killed, and had saved neither the earlier one's end nor the later one's start."""
    forgotten = placeholder_job(SECOND, attempt=2, node="n1")
    back = placeholder_job(GATED, state, node=node)
    record, stray = find(bound(forgotten, attempt=2), back)
    assert record is not None
    assert (record.state, record.job.id, stray) == (State.BOUND, forgotten.id, (back,))


# Pods that are over


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pods_live_jobs_are_ended(phase: str) -> None:
    job, second = placeholder_job(GATED, node="n1"), placeholder_job(GATED, "PENDING", attempt_try=1)
    annotations = {JOB_ID: str(job.id), NODE: "n1"}
    over = pod(uid="u1", gates=(), node="n1", phase=phase, annotations=annotations)
    assert find(over, job, second) == (None, (job, second))


def test_a_finished_pods_ended_job_is_left_alone() -> None:
    over = pod(uid="u1", gates=(), node="n1", phase="Succeeded")
    assert find(over, placeholder_job(GATED, "COMPLETED", node="n1")) == (None, ())


def test_a_pod_deleted_before_it_was_bound_ends_its_jobs() -> None:
    job = placeholder_job(GATED, "PENDING")
    assert find(pod(uid="u1", deleting=True), job) == (None, (job,))


# Jobs that are not ours


FOREIGN = {
    "no key": "",
    "another comment": "by hand",
    "another cluster": str(PlaceholderKey("elsewhere", "default", "p", "u1", 1)),
    "another Pod": str(PlaceholderKey(RULES.cluster, "default", "p", "u2", 1)),
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "CANCELLED", "FAILED"])
def test_a_foreign_job_under_our_id_is_neither_adopted_nor_ended(kind: str, state: str) -> None:
    collision = placeholder_job(GATED, state, node="n1", admin_comment=FOREIGN[kind])
    record = record_of(GATED, collision)
    assert (record.state, record.job.id, record.job.asked.attempt_try) == (State.SEEN, None, 0)


# Whatever is found

PODS: dict[str, Callable[[Job], Pod]] = {
    "gated": lambda _: GATED,
    "second attempt": lambda _: SECOND,
    "ungated": lambda job: pod(uid="u1", gates=(), annotations={JOB_ID: str(job.id), NODE: "n1"}),
    "bound": bound,
    "bound, second attempt": lambda job: bound(job, attempt=2),
    "bound, node forged": lambda job: bound(job, says="n2"),
    "bound, job forged": lambda _: bound(NATIVE),
    "bound, bare": lambda _: pod(uid="u1", gates=(), node="n1"),
    "bound elsewhere": lambda job: bound(job, node="n2"),
    "bound, leaving": lambda _: pod(uid="u1", node="n1", deleting=True),
    "leaving": lambda _: pod(uid="u1", deleting=True),
    "over": lambda _: pod(uid="u1", node="n1", phase="Failed"),
}
JOBS = [
    placeholder_job(GATED, state, attempt=attempt, attempt_try=attempt_try, node="n1")
    for state in ("PENDING", "RUNNING", "CANCELLED", "FAILED")
    for attempt in (1, 2)
    for attempt_try in (0, 1)
] + [failed_before_start(GATED, 0), NATIVE]


@pytest.mark.parametrize("kind", PODS)
def test_every_live_job_is_either_kept_or_ended(kind: str) -> None:
    """None is left without anybody to end it, none is ended under the record that holds it, and what
    is not ours is neither."""
    for jobs in combinations(JOBS, 2):
        if jobs[0].id == jobs[1].id:
            continue
        record, stray = find(PODS[kind](jobs[0]), *jobs)
        held = set() if record is None or record.job.id is None else {record.job.id}
        live = {job.id for job in jobs if not job.state.ended and job is not NATIVE}
        ended = {job.id for job in stray}
        assert ended <= live, jobs
        assert live <= held | ended, jobs
        assert not held & ended, jobs
        assert NATIVE.id not in held, jobs


# Ids to ask about


def test_the_first_tries_of_this_attempt_and_the_last_are_asked_about() -> None:
    keys = [
        PlaceholderKey(RULES.cluster, "default", "p", "u1", attempt, attempt_try)
        for attempt in (1, 2)
        for attempt_try in range(TRIES_AT_RECOVERY)
    ]
    assert set(possible_ids(SECOND, RULES)) == {key.job_id(RULES.ids) for key in keys}


def test_before_the_first_attempt_there_was_none() -> None:
    assert len(possible_ids(GATED, RULES)) == TRIES_AT_RECOVERY


def test_the_id_on_the_pod_is_asked_about_once() -> None:
    later = placeholder_job(GATED, attempt_try=9).id
    assert possible_ids(pod(uid="u1", annotations={JOB_ID: str(later)}), RULES)[-1] == later
    first = placeholder_job(GATED).id
    assert len(possible_ids(pod(uid="u1", annotations={JOB_ID: str(first)}), RULES)) == TRIES_AT_RECOVERY


def test_a_job_that_a_pod_names_is_the_pods_where_it_has_the_pods_key_whatever_its_id() -> None:
    """So where the range of ids, or the secret, was changed, or the proof was taken off the Pod."""
    there = bound(job := placeholder_job(GATED, node="n1"))
    moved = replace(AT, rules=replace(RULES, ids=JobIdRange(end=job.id)))
    assert list(to_read([there], {job.id: job.state}, moved.rules)) == [job.id]
    record, _ = recovered((there,), (job,), moved)
    assert record is not None
    assert (record.state, record.job.id) == (State.BOUND, job.id)
    stranger = replace(job, admin_comment="")
    assert recovered((there,), (stranger,), moved) == (None, ())


@pytest.mark.parametrize("became", ["CANCELLED", "NODE_FAIL", "PENDING", None])
def test_a_pod_that_carries_an_allocation_holds_its_node_whatever_its_job_became(
    became: str | None,
) -> None:
    """A Binding may be under way."""
    granted = placeholder_job(GATED, became or "RUNNING", node=None if became == "PENDING" else "n1")
    carries = pod(uid="u1", gates=(), annotations={ATTEMPT: "1", JOB_ID: str(granted.id), NODE: "n1"})
    record, _ = find(carries, *((granted,) if became else ()))
    assert record is not None
    assert record.holds == {"n1"}


# What has to be read


def read(of: Pod, *jobs: Job) -> set[int]:
    return set(to_read([of], {job.id: job.state for job in (*jobs, NATIVE)}, RULES))


def test_of_a_pod_that_runs_by_the_job_that_it_names_nothing_is_read_at_once() -> None:
    job = placeholder_job(GATED, node="n1", attempt_try=1)
    runs = bound(job)
    assert read(runs, job, failed_before_start(GATED, 0)) == set()
    record = record_of(runs)
    assert (record.state, record.job.id, record.job.asked.attempt_try) == (State.BOUND, job.id, 1)
    assert record.job.unread
    assert AT.now <= record.retry.not_before <= AT.now + RULES.verified


@pytest.mark.parametrize("state", ["PENDING", "SUSPENDED", "CANCELLED", "COMPLETING", "FAILED"])
def test_one_that_does_not_run_is_read(state: str) -> None:
    job = placeholder_job(GATED, state, node="n1")
    assert read(bound(job), job) == {job.id}


def test_all_are_read_where_another_lives_or_the_pods_word_is_not_borne_out() -> None:
    job, other = placeholder_job(GATED, node="n1"), placeholder_job(GATED, "PENDING", attempt_try=1)
    assert read(bound(job), job, other) == {job.id, other.id}
    assert read(bound(job, says="n2"), job) == {job.id}
    assert read(GATED, job) == {job.id}
    stranger = placeholder_job(pod(uid="u2"), node="n1")
    assert read(bound(stranger), stranger) == {stranger.id}
