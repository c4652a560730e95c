"""Tests of the recovery of a placeholder from a Pod and from the jobs under the Pod's ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product

import pytest

from extender.explain.sentences import sentence
from extender.jobs.claim import Charged
from extender.placement.recovery import possible_ids, recovered, to_read
from extender.placement.transitions.table import after_read
from extender.pod_request.pod import Pod
from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.job_state import JobState
from slurm_client.model import Job
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
    """Returns the record of a Pod with these jobs. Fails if the recovery would end one of the jobs."""
    record, stray = find(of, *jobs)
    assert record is not None
    assert stray == ()
    return record


def failed_before_start(of: Pod, attempt_try: int, attempt: int = 1) -> Job:
    """Returns the job of a refused immediate request."""
    return placeholder_job(of, "FAILED", attempt=attempt, attempt_try=attempt_try)


def bound(job: Job, *, node: str = "n1", says: str | None = None, attempt: int = 1) -> Pod:
    """Returns a Pod on a Node. The annotations name the job and the Node `says`."""
    annotations = {ATTEMPT: str(attempt), JOB_ID: str(job.id), NODE: says or node}
    return pod(uid="u1", gates=(), node=node, phase="Running", annotations=annotations)


def ended_pod(phase: str, job: Job) -> Pod:
    annotations = {JOB_ID: str(job.id), NODE: "n1"}
    return pod(uid="u1", gates=(), node="n1", phase=phase, annotations=annotations)


RUNS, RUNS_AT_N2 = placeholder_job(GATED, node="n1"), placeholder_job(GATED, node="n2")
WAITS, NEXT_WAITS = placeholder_job(GATED, "PENDING"), placeholder_job(GATED, "PENDING", attempt_try=1)
NEXT_RUNS = placeholder_job(GATED, attempt_try=1, node="n1")
UNUSED, NEXT_UNUSED = failed_before_start(GATED, 0), failed_before_start(GATED, 1)
CANCELLED = placeholder_job(GATED, "CANCELLED")
ENDED_N1, ENDED_N2 = (replace(CANCELLED, nodes=(node,)) for node in ("n1", "n2"))
SECOND_RUNS = placeholder_job(SECOND, attempt=2, node="n1")
SECOND_ENDED = placeholder_job(SECOND, "TIMEOUT", attempt=2, node="n1")
BARE = pod(uid="u1", gates=(), node="n1")
"""A bound Pod without a job id."""
LEAVING = pod(
    uid="u1", gates=(), node="n1", deleting=True, annotations={JOB_ID: str(RUNS.id), NODE: "n1"}
)


@pytest.mark.parametrize(
    ("of", "jobs", "attempt", "attempt_try"),
    [
        (GATED, (), 1, 0),
        (SECOND, (), 2, 0),
        (GATED, (UNUSED, NEXT_UNUSED), 1, 2),
        (SECOND, (failed_before_start(SECOND, 0, attempt=1),), 2, 0),
        (SECOND, (placeholder_job(SECOND, "CANCELLED", attempt=1, node="n1"),), 2, 0),
    ],
    ids=["first attempt", "second attempt", "ids used up", "of an earlier attempt", "earlier job ended"],
)
def test_a_pod_without_a_job_waits_for_its_turn(
    of: Pod, jobs: tuple[Job, ...], attempt: int, attempt_try: int
) -> None:
    record = record_of(of, *jobs)
    assert (record.state, record.job.id) == (State.SEEN, None)
    assert (record.attempt, record.job.asked.attempt_try) == (attempt, attempt_try)
    assert (record.first_seen, record.since) == (AT.now, AT.now)


@pytest.mark.parametrize(
    ("of", "jobs", "state", "held"),
    [
        (GATED, (WAITS,), State.QUEUED, WAITS),
        (GATED, (UNUSED, NEXT_WAITS), State.QUEUED, NEXT_WAITS),
        (GATED, (CANCELLED, NEXT_UNUSED), State.EVICTING, CANCELLED),
        (GATED, (CANCELLED, NEXT_WAITS), State.QUEUED, NEXT_WAITS),
        (GATED, (WAITS, NEXT_RUNS), State.ALLOCATED, NEXT_RUNS),
        (bound(RUNS), (RUNS, NEXT_WAITS), State.BOUND, RUNS),
        (bound(WAITS), (WAITS,), State.BOUND, WAITS),  # requeued: the next poll ends the Pod
        (LEAVING, (RUNS,), State.BOUND, RUNS),
        # A user has removed or changed an annotation.
        (BARE, (RUNS,), State.BOUND, RUNS),
        (bound(RUNS, says="n2"), (RUNS,), State.BOUND, RUNS),
        # The bound Pod names an ended job of an earlier attempt.
        (bound(ENDED_N1, attempt=2), (ENDED_N1, SECOND_RUNS), State.BOUND, SECOND_RUNS),
        (bound(ENDED_N2, attempt=2), (ENDED_N2, SECOND_RUNS), State.BOUND, SECOND_RUNS),
        (
            bound(ENDED_N2, attempt=2),
            (ENDED_N2, SECOND_ENDED),
            State.EVICTING,
            SECOND_ENDED,
        ),
    ],
)
def test_one_job_is_kept_and_other_live_jobs_are_ended(
    of: Pod, jobs: tuple[Job, ...], state: State, held: Job
) -> None:
    record, stray = find(of, *jobs)
    key = PlaceholderKey.parse(held.admin_comment)
    assert record is not None
    assert key is not None
    assert (record.state, record.job.id) == (state, held.id)
    assert record.job.asked.attempt_try == key.attempt_try
    assert stray == tuple(job for job in jobs if job != held and not job.state.ended)


@pytest.mark.parametrize(
    ("of", "jobs"),
    [
        (BARE, ()),
        (BARE, (placeholder_job(GATED, attempt=ADOPTED_ATTEMPT, node="n1"),)),
        (BARE, (WAITS,)),
        (pod(uid="u1", gates=(), node="n1", annotations={JOB_ID: str(WAITS.id)}), (WAITS,)),
        (bound(RUNS_AT_N2, says="n2"), (RUNS_AT_N2,)),
        (ended_pod("Succeeded", RUNS), (RUNS, NEXT_WAITS)),
        (ended_pod("Failed", RUNS), (RUNS, NEXT_WAITS)),
        (pod(uid="u1", deleting=True), (WAITS,)),
    ],
    ids=[
        "bound without a job",
        "was adopted",
        "bound without an allocation",
        "bound with the id of a waiting job",
        "bound elsewhere",
        "succeeded",
        "failed",
        "deleted before it was bound",
    ],
)
def test_a_pod_that_needs_no_job_gives_its_live_jobs_back(of: Pod, jobs: tuple[Job, ...]) -> None:
    assert find(of, *jobs) == (None, jobs)


def test_a_finished_pods_ended_job_is_left_alone() -> None:
    over = pod(uid="u1", gates=(), node="n1", phase="Succeeded")
    assert find(over, placeholder_job(GATED, "COMPLETED", node="n1")) == (None, ())


# Waiting Pods


@pytest.mark.parametrize("state", ["RUNNING,CONFIGURING", "RUNNING,COMPLETING", "UNHEARD-OF"])
def test_pod_of_a_live_job_that_does_not_run_yet_is_queued(state: str) -> None:
    assert record_of(GATED, placeholder_job(GATED, state, node="n1")).state is State.QUEUED


def test_a_suspended_job_of_a_pod_that_waits_is_replaced() -> None:
    assert record_of(GATED, placeholder_job(GATED, "SUSPENDED", node="n1")).state is State.REPLACING


def test_a_running_job_is_an_allocation_that_has_to_be_written() -> None:
    job = placeholder_job(GATED, node="n2", gres=("gpu:2(IDX:0-1)",))
    record = record_of(GATED, job)
    assert (record.state, record.members[0].write.done) == (State.ALLOCATED, False)
    assert record.members[0].slot == Allocation(job.id, "n2", "gpu:2(IDX:0-1)")


def test_running_job_on_a_node_outside_kubernetes_is_given_back() -> None:
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


@pytest.mark.parametrize("state", ["CANCELLED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "FAILED"])
def test_a_job_that_slurm_took_away_is_replaced(state: str) -> None:
    """The ledger places a Pod again if the containers have not started. For example, slurmd cancels a
    job that slurmd cannot start."""
    record = record_of(GATED, placeholder_job(GATED, state, node="n1"))
    assert (record.state, record.job.over) == (State.REPLACING, True)


def test_ungated_pod_of_a_running_job_is_also_allocated() -> None:
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


def test_live_job_of_the_present_attempt_is_kept() -> None:
    """If the extender ended the live job, the end would look like a cancellation by a person, and the
    extender would evict the Pod."""
    for old_state, state in product(("PENDING", "RUNNING"), repeat=2):
        old = placeholder_job(SECOND, old_state, attempt=1, node="n1")
        job = placeholder_job(SECOND, state, attempt=2, node="n2")
        record, stray = find(SECOND, old, job)
        assert record is not None
        assert (record.job.id, stray) == (job.id, (old,)), (old_state, state)


# Bound Pods


def test_bound_pod_with_a_running_job_stays_bound() -> None:
    job = placeholder_job(GATED, attempt_try=1, node="n1")
    record = record_of(bound(job), job)
    assert (record.state, record.job.id, record.job.asked.attempt_try) == (State.BOUND, job.id, 1)
    assert record.members[0].slot == Allocation(job.id, "n1")


def test_user_and_account_of_a_job_are_known_after_a_read() -> None:
    job = placeholder_job(GATED, node="n1", user_name="alice", account="ml", partition="gpu")
    unread = record_of(bound(job))
    assert (unread.job.unread, unread.job.verdict.charged) == (True, None)
    charged = Charged("alice", "ml", "gpu")
    assert after_read(unread, job, AT).job.verdict.charged == charged
    assert record_of(bound(job), job).job.verdict.charged == charged


def test_a_bound_pod_whose_job_ended_is_evicted() -> None:
    job = placeholder_job(GATED, "PREEMPTED", node="n1")
    record = record_of(bound(job), job)
    assert (record.state, record.job.over) == (State.EVICTING, True)
    assert record.cause is not None
    assert record.cause.reason == "SlurmJobPreempted"


@pytest.mark.parametrize(
    ("state", "at_once", "later"),
    [
        ("COMPLETED", State.EVICTING, State.EVICTING),
        ("RUNNING", State.BOUND, State.EVICTING),
    ],
)
def test_a_bound_pod_whose_job_was_started_elsewhere_is_evicted(
    state: str, at_once: State, later: State
) -> None:
    """The owner may have requeued the job while no replica led."""
    job = placeholder_job(GATED, state, node="n2", restart_count=1)
    record = record_of(bound(placeholder_job(GATED, node="n1")), job)
    assert (record.state, record.job.id) == (at_once, job.id)
    assert after_read(record, job, AT).state is later


def test_a_bound_pod_whose_job_slurm_does_not_know_runs_on() -> None:
    job = placeholder_job(GATED, node="n1", attempt_try=1)
    record = record_of(bound(job))
    assert (record.state, record.job.id) == (State.BOUND, job.id)
    assert str(record.key(RULES.cluster)) == job.admin_comment  # the key for a repeated request


@pytest.mark.parametrize(
    ("state", "node"),
    [
        ("CANCELLED", "n1"),
        ("CANCELLED", "n2"),
        ("CANCELLED", None),
        ("RUNNING", "n2"),
        ("PENDING", None),
    ],
)
def test_a_bound_pod_of_a_forgotten_job_ignores_an_earlier_job(state: str, node: str | None) -> None:
    """A killed slurmctld may have saved neither the end of the earlier job nor the start of the later
    job."""
    forgotten = placeholder_job(SECOND, attempt=2, node="n1")
    earlier = placeholder_job(GATED, state, node=node)
    record, stray = find(bound(forgotten, attempt=2), earlier)
    assert record is not None
    assert (record.state, record.job.id) == (State.BOUND, forgotten.id)
    assert stray == (() if earlier.state.ended else (earlier,))


def test_a_forged_job_id_on_a_bound_pod_is_not_taken_over() -> None:
    """The ledger cancels the record's job when the Pod goes. Therefore the job must belong to the Pod
    (invariant I6)."""
    other = placeholder_job(pod(uid="another"), node="n1")
    for foreign in (NATIVE, other):
        for jobs in ((), (foreign,)):
            record, stray = find(bound(foreign), *jobs)
            assert stray == ()
            assert record is None or record.job.id != foreign.id


# Foreign jobs


FOREIGN = {
    "no key": "",
    "another comment": "by hand",
    "another cluster": str(PlaceholderKey("elsewhere", "default", "p", "u1", 1)),
    "another Pod": str(PlaceholderKey(RULES.cluster, "default", "p", "u2", 1)),
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "CANCELLED", "FAILED"])
def test_foreign_job_under_the_pods_id_is_neither_adopted_nor_ended(kind: str, state: str) -> None:
    collision = placeholder_job(GATED, state, node="n1", admin_comment=FOREIGN[kind])
    record = record_of(GATED, collision)
    assert (record.state, record.job.id, record.job.asked.attempt_try) == (State.SEEN, None, 0)


# Any combination of jobs

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
    """The recovery keeps each live job in a record, or ends the job, but not both. The recovery neither
    keeps nor ends a foreign job."""
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


# Possible ids


def test_possible_ids_cover_first_tries_of_this_and_the_last_attempt() -> None:
    keys = [
        PlaceholderKey(RULES.cluster, "default", "p", "u1", attempt, attempt_try)
        for attempt in (1, 2)
        for attempt_try in range(TRIES_AT_RECOVERY)
    ]
    assert set(possible_ids(SECOND, RULES)) == {key.job_id(RULES.ids) for key in keys}


def test_possible_ids_of_a_first_attempt_include_no_earlier_attempt() -> None:
    assert len(possible_ids(GATED, RULES)) == TRIES_AT_RECOVERY


def test_possible_ids_contain_the_id_on_the_pod_once() -> None:
    later = placeholder_job(GATED, attempt_try=9).id
    assert possible_ids(pod(uid="u1", annotations={JOB_ID: str(later)}), RULES)[-1] == later
    first = placeholder_job(GATED).id
    assert len(possible_ids(pod(uid="u1", annotations={JOB_ID: str(first)}), RULES)) == TRIES_AT_RECOVERY


def test_job_named_by_a_pod_is_accepted_by_its_key_whatever_its_id() -> None:
    """The Pod's job counts even if the range of ids has changed."""
    there = bound(job := placeholder_job(GATED, node="n1"))
    moved = replace(AT, rules=replace(RULES, ids=JobIdRange(end=job.id)))
    assert list(to_read([there], {job.id: job.state}, moved.rules)) == [job.id]
    record, _ = recovered((there,), (job,), moved)
    assert record is not None
    assert (record.state, record.job.id) == (State.BOUND, job.id)
    stranger = replace(job, admin_comment="")
    assert recovered((there,), (stranger,), moved) == (None, ())


@pytest.mark.parametrize("became", ["CANCELLED", "NODE_FAIL", "PENDING", None])
def test_an_allocated_pod_holds_its_node_whatever_its_job_became(became: str | None) -> None:
    """kube-scheduler may be binding the Pod already."""
    granted = placeholder_job(GATED, became or "RUNNING", node=None if became == "PENDING" else "n1")
    carries = pod(uid="u1", gates=(), annotations={ATTEMPT: "1", JOB_ID: str(granted.id), NODE: "n1"})
    record, _ = find(carries, *((granted,) if became else ()))
    assert record is not None
    assert record.holds == {"n1"}


# Jobs to read


def read(of: Pod, *jobs: Job) -> set[int]:
    return set(to_read([of], {job.id: job.state for job in (*jobs, NATIVE)}, RULES))


def test_running_job_that_its_bound_pod_names_is_not_read_at_once() -> None:
    job = placeholder_job(GATED, node="n1", attempt_try=1)
    runs = bound(job)
    assert read(runs, job, failed_before_start(GATED, 0)) == set()
    record = record_of(runs)
    assert (record.state, record.job.id, record.job.asked.attempt_try) == (State.BOUND, job.id, 1)
    assert record.job.unread
    assert AT.now <= record.retry.not_before <= AT.now + RULES.recovery_read_spread


@pytest.mark.parametrize("state", ["PENDING", "SUSPENDED", "CANCELLED", "COMPLETING", "FAILED"])
def test_job_that_does_not_run_is_read(state: str) -> None:
    job = placeholder_job(GATED, state, node="n1")
    assert read(bound(job), job) == {job.id}


def test_jobs_are_read_if_another_job_lives_or_the_pod_disagrees() -> None:
    job, other = placeholder_job(GATED, node="n1"), placeholder_job(GATED, "PENDING", attempt_try=1)
    assert read(bound(job), job, other) == {job.id, other.id}
    assert read(bound(job, says="n2"), job) == {job.id}
    assert read(GATED, job) == {job.id}
    stranger = placeholder_job(pod(uid="u2"), node="n1")
    assert read(bound(stranger), stranger) == {stranger.id}
