"""The one table of a placeholder's reactions: for each state, the next effect and the reaction to each
kind of news.

For example, the row of QUEUED shows the reactions to all events in QUEUED. `states.MOVES` has the legal
moves.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, NamedTuple

from extender.jobs.poll import News, polled
from extender.jobs.verdict import judge
from extender.placement.transitions import next_effect as does
from extender.placement.transitions import on_job, on_pod
from extender.placement.transitions.moves import in_doubt, look_again
from extender.placement.transitions.on_altered import altered, recognised
from extender.pod_request.job_request import Request
from extender.pod_request.pod import Pod
from extender.record.config import Context
from extender.record.events import Effect, OnPod
from extender.record.member import Member
from extender.record.placeholder import Placeholder
from extender.record.states import ASKED, OVER, WITHOUT_JOB, State
from slurm_client.job_state import JobState
from slurm_client.model import Job


def _no_effect(*_: object) -> None:
    return None


def _no_writes(*_: object) -> tuple[()]:
    return ()


def _unchanged(record: Placeholder, *_news: Any) -> Placeholder:
    return record


def unclaimed(record: Placeholder, _at: Context) -> Placeholder:
    return record.unclaimed()


class Row(NamedTuple):
    """The effects of a state, and the reaction to each kind of news. The text below a reaction describes
    the news."""

    does: Callable[[Placeholder, Context], Effect | None] = _no_effect
    """Returns the next effect on the job; None if nothing can be done yet."""
    writes: Callable[[Placeholder, Context], Iterable[OnPod]] = _no_writes
    """Yields the due effects on the Pods, one for each Pod."""
    runs: Callable[[Placeholder, Job, Context], Placeholder] = _unchanged
    """The job was read, and runs."""
    waits: Callable[[Placeholder, Job, Context], Placeholder] = _unchanged
    """The job was read, and neither runs nor has ended."""
    ended: Callable[[Placeholder, JobState, Job | None, Context], Placeholder] = _unchanged
    """The job no longer holds its resources. The job is None after a poll."""
    foreign: Callable[[Placeholder, Context], Placeholder] = _unchanged
    """The id belongs to another job."""
    unknown: Callable[[Placeholder, Context], Placeholder] = _unchanged
    """The job was read, and Slurm does not know the id."""
    lost: Callable[[Placeholder, Context], Placeholder] = unclaimed
    """A healthy Slurm did not know the job in several polls in a row."""
    read: Callable[[Placeholder, Job, Context], Placeholder] = _unchanged
    """The job was read between two polls (`JobRead`)."""
    bound: Callable[[Placeholder, Pod, Context], Placeholder] = on_pod.bound_elsewhere
    """A Pod of the placeholder was seen on a Node."""
    changed: Callable[[Placeholder, Request, Context], Placeholder] = on_pod.changed
    """The Pods' request has changed. The argument is the request before the change."""


TABLE: Mapping[State, Row] = {
    State.SEEN: Row(),
    State.SUBMITTING: Row(
        does=does.ask,
        runs=on_job.asked_runs,
        waits=on_job.asked_waits,
        ended=on_job.asked_ended,
        foreign=on_job.asked_foreign,
        unknown=on_job.asked_unknown,
        changed=on_pod.asked_changed,
    ),
    State.QUEUED: Row(
        does=does.ask_why,
        runs=on_job.queued_runs,
        waits=on_job.queued_waits,
        ended=on_job.asked_ended,
        foreign=on_job.another_id,
        unknown=look_again,
        lost=on_job.queued_lost,
        changed=on_pod.asked_changed,
    ),
    State.ALLOCATED: Row(
        does=does.read_grant,
        writes=does.write_allocations,
        runs=on_job.allocated_runs,
        waits=on_job.granted_waits,
        ended=on_job.allocated_ended,
        foreign=on_job.allocated_lost,
        unknown=look_again,
        lost=on_job.allocated_lost,
        read=on_job.allocated_read,
        bound=on_pod.bound_by_its_job,
        changed=on_pod.allocated_changed,
    ),
    State.BOUND: Row(
        does=does.keep,
        writes=does.record_job,
        runs=on_job.bound_runs,
        waits=on_job.granted_waits,
        ended=on_job.bound_ended,
        foreign=on_job.bound_foreign,
        unknown=look_again,
        lost=on_job.bound_lost,
        read=on_job.bound_read,
        bound=on_pod.bound_later,
    ),
    State.REPLACING: Row(
        does=does.replace_job,
        writes=does.write_attempts,
        runs=on_job.released_read,
        waits=on_job.released_read,
        ended=on_job.released_ended,
        foreign=on_job.released_foreign,
        unknown=on_job.released_unknown,
        lost=on_job.replacing_lost,
        bound=on_pod.bound_by_its_job,
    ),
    State.EVICTING: Row(
        writes=does.evict,
        ended=on_job.evicting_ended,
        lost=on_job.released_lost,
        bound=on_pod.awaited,
    ),
    State.RELEASING: Row(
        does=does.release,
        runs=on_job.released_read,
        waits=on_job.released_read,
        ended=on_job.released_ended,
        foreign=on_job.released_foreign,
        unknown=on_job.released_unknown,
        lost=on_job.released_lost,
    ),
    State.INVALID: Row(changed=on_pod.invalid_changed),
    State.DONE: Row(),
}


def next_effect(record: Placeholder, at: Context) -> Effect | None:
    """Returns the next effect on the job; None if another event must come first."""
    return TABLE[record.state].does(record, at)


def writes(record: Placeholder, at: Context) -> Iterable[OnPod]:
    """Yields the due effects on the placeholder's Pods."""
    return TABLE[record.state].writes(record, at)


def after_poll(record: Placeholder, state: JobState | None, at: Context) -> Placeholder:
    """Returns the record after a poll. `state` is None if Slurm did not know the job."""
    if state is None and record.retry.in_flight:
        return record  # Slurm has not processed the submission yet
    bound = record.state is State.BOUND
    job, news = polled(record.job, state, at.rules.confirmations, bound=bound)
    record, row = record if job is record.job else record._replace(job=job), TABLE[record.state]
    match news:
        case News.STARTED:
            return record.move(State.ALLOCATED, at.now).with_job(unread=True)
        case News.ENDED if state is not None:
            return row.ended(record, state, None, at)
        case News.LOST:
            return row.lost(record, at)
        case News.DOUBTFUL:
            return in_doubt(record, at)
        case News.RESTORED:
            return on_job.restored(record, at)
    return record


def after_read(record: Placeholder, job: Job | None, at: Context) -> Placeholder:
    """Returns the record after its job was read. `job` is None if Slurm does not know the id."""
    if job is None:
        return TABLE[record.state].unknown(record, at)
    first = record.job.is_ours and record.job.identity is None
    verdict = judge(job, on_job.claim_of_record(record, at.rules, at.view), record.request.job)
    record = recognised(record, job, verdict)
    if not verdict.is_ours:
        return TABLE[record.state].foreign(record, at)
    replaced = altered(record, job, at, first=first)
    if replaced is not None:
        return replaced
    if first and record.job.mistrust.altered:
        record = record.with_mistrust(altered=0)
    return _as_read(record, job, at)


def _as_read(record: Placeholder, job: Job, at: Context) -> Placeholder:
    row = TABLE[record.state]
    if job.state.ended:
        return row.ended(record, job.state, job, at)
    return row.runs(record, job, at) if job.state.running else row.waits(record, job, at)


def after_pods(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record after the current version of each Pod was handled again."""
    for member in record.members:
        record = after_pod(record, member.pod, at)
    return record


def after_pod(record: Placeholder, pod: Pod, at: Context) -> Placeholder:
    """Returns the record after a new version of a member's Pod was seen, or after another Pod of the
    workload was seen."""
    member, request = record.member(pod.uid), record.request
    if member is not None:
        return _after_version(record, member, pod, request, at)
    record = on_pod.joined(record, pod, at)
    member = record.member(pod.uid)
    if member is None:
        return record
    if record.state in WITHOUT_JOB and pod.life.node is None and pod.scheduling.attempt < record.attempt:
        return on_pod.numbering(record, record.attempt, at)
    return _after_version(record, member, pod, request, at)


def _after_version(
    record: Placeholder, member: Member, pod: Pod, request: Request, at: Context
) -> Placeholder:
    """Returns the record after a new version of a member's Pod. `member` and `request` are the member
    and the joint request before this version."""
    record = on_pod.with_version(record, member, pod)
    if record.state in OVER:
        return record
    if pod.over:
        return on_pod.after_end(record, pod.uid, at.now)
    if pod.scheduling.attempt > record.attempt and not on_pod.is_misnumbered(record, pod):
        numbered = on_pod.renumbered(record, pod)
        if numbered is None:
            return on_pod.overtaken(record, pod, at)
        record = on_pod.with_carried(numbered, at)
    else:
        record = on_pod.with_carried(record, at, pod.uid)
    if pod.life.node is not None:
        return TABLE[record.state].bound(record, pod, at)
    return _unbound(record, pod, member.pod, request, at)


def _unbound(record: Placeholder, pod: Pod, before: Pod, request: Request, at: Context) -> Placeholder:
    """Returns the record after a new version of an unbound Pod. `before` is the Pod's last version, and
    `request` is the joint request before this version."""
    now, by = at.now, at.now + at.rules.unbound_deadline
    if pod.scheduling.obstacle is not None and record.state in ASKED:
        return record.move(State.REPLACING, now, cause=pod.scheduling.obstacle)
    if (
        record.retry.unbound_by < inf
        and before.scheduling.provisioned_on
        and not pod.scheduling.provisioned_on
    ):
        record = record.with_retry(unbound_by=by)
    if record.request != request:
        return on_pod.awaited(_changed(record, request, at), pod, at)
    return on_pod.unbound(record, pod, before, at)


def _changed(record: Placeholder, before: Request, at: Context) -> Placeholder:
    if record.request == before:
        return record
    return TABLE[record.state].changed(record, before, at)
