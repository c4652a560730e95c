"""What each kind of news means for a placeholder in each state, and what it does next: one table.

"What can happen to a QUEUED placeholder?" is its row. The moves that follow are those of `states.MOVES`.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple

from extender.jobs.verdict import judge
from extender.placement import next_effect as does
from extender.placement import on_job, on_pod, on_read
from extender.record.condition_reason import ConditionReason
from extender.record.config import Context
from extender.record.events import Effect
from extender.record.member import Member
from extender.record.placeholder import Placeholder
from extender.record.states import ASKED, OVER, WITHOUT_JOB, State
from extender.request.job_request import Request
from extender.request.pod import Pod
from slurm_client.model import UNKNOWN_STATE, Job, JobState
from wellknown.names import Reason


def _no_effect(*_: object) -> None:
    return None


def _unchanged(record: Placeholder, *_news: object) -> Placeholder:
    return record


def _unclaimed(record: Placeholder, _at: Context) -> Placeholder:
    return record.unclaimed()


class Row(NamedTuple):
    """What a placeholder does in a state, and what it makes of news."""

    does: Callable[[Placeholder, Context], Effect | None] = _no_effect
    """The effect that moves it on; None where something must happen first."""
    polled: Callable[[Placeholder, JobState, Context], Placeholder] = _unchanged
    """Its job is in this state."""
    lost: Callable[[Placeholder, Context], Placeholder] = _unclaimed
    """A healthy Slurm does not know its job, again and again."""
    read: Callable[[Placeholder, Job | None, Context], Placeholder] = _unchanged
    """Its job is this; None: Slurm does not know that id."""
    grace: Callable[[Placeholder, Job, Context], Placeholder] = _unchanged
    """Its job is being preempted, and has its GraceTime left."""
    bound: Callable[[Placeholder, Pod, Context], Placeholder] = on_pod.bound_elsewhere
    """A Pod of it was seen on a Node."""
    changed: Callable[[Placeholder, Request, Context], Placeholder] = on_pod.changed
    """Its author asks for something else than this."""


TABLE: Mapping[State, Row] = {
    State.SEEN: Row(),
    State.SUBMITTING: Row(does=does.ask, read=on_read.unasked_read, changed=on_pod.asked_changed),
    State.QUEUED: Row(
        does=does.ask_why,
        polled=on_job.waiting_polled,
        lost=on_job.waiting_lost,
        read=on_read.waiting_read,
        changed=on_pod.asked_changed,
    ),
    State.ALLOCATED: Row(
        does=does.write_allocation,
        polled=on_job.running_polled,
        lost=on_job.allocated_lost,
        read=on_read.allocated_read,
        bound=on_pod.bound_by_its_job,
        changed=on_pod.allocated_changed,
    ),
    State.BOUND: Row(
        does=does.keep,
        polled=on_job.running_polled,
        lost=on_job.bound_lost,
        read=on_read.bound_read,
        grace=on_job.told_of_grace,
        bound=_unchanged,
    ),
    State.REPLACING: Row(
        does=does.replace_job,
        polled=on_job.released_polled,
        lost=on_job.replacing_lost,
        read=on_read.released_read,
        bound=on_pod.bound_by_its_job,
    ),
    State.EVICTING: Row(
        does=does.evict,
        polled=on_job.released_polled,
        lost=on_job.released_lost,
        bound=on_pod.awaited,
    ),
    State.RELEASING: Row(
        does=does.release,
        polled=on_job.released_polled,
        lost=on_job.released_lost,
        read=on_read.released_read,
    ),
    State.INVALID: Row(changed=on_pod.invalid_changed),
    State.DONE: Row(polled=on_job.tombstone_polled),
}


def next_effect(record: Placeholder, at: Context) -> Effect | None:
    """Returns the effect that moves a placeholder on now; None where something must happen first."""
    return TABLE[record.state].does(record, at)


def after_poll(record: Placeholder, state: JobState | None, at: Context) -> Placeholder:
    """Returns the record after a poll said this state, or (None) did not know the job."""
    row, job = TABLE[record.state], record.job
    if state is None and record.retry.in_flight:
        return record  # it may be a submission that Slurm has not seen yet
    if state is None:
        misses = job.mistrust.misses + 1
        missed = record.with_mistrust(misses=misses)
        return row.lost(missed, at) if misses >= at.rules.confirmations else missed
    if state.base == UNKNOWN_STATE:  # it could not be read, or understood
        return record
    if job.mistrust.misses or job.lost:
        record = record.with_job(lost=False).with_mistrust(misses=0)
    if job.lost and record.state is State.BOUND:  # it is back, or its id is another's by now
        return on_job.in_doubt(record, at)
    return row.polled(record, state, at)


def after_read(record: Placeholder, job: Job | None, at: Context) -> Placeholder:
    """Returns the record after its job was read; None where Slurm does not know that id."""
    made_so = record.job.is_ours and record.job.identity is None
    if job is not None:
        claim = on_read.claim_of_record(record, at.rules, at.view)
        verdict = judge(job, claim, record.request.job)
        record = on_read.recognised(record, job, verdict)
        unusable = on_read.unusable(record, job, verdict, at, made_so=made_so)
        if unusable is not None:
            return unusable
    if made_so and record.job.is_ours and record.job.mistrust.altered:
        record = record.with_mistrust(altered=0)  # this job is as it was asked for
    read = TABLE[record.state].read(record, job, at)
    waited = record.state is State.QUEUED and read.state is not State.QUEUED
    return after_read(read, job, at) if waited else read  # it is looked at as what it is by now


def after_pod(record: Placeholder, pod: Pod, at: Context) -> Placeholder:
    """Returns the record after a new version of one of its Pods was seen, or another of its Pods."""
    member, request = record.member(pod.uid), record.request
    if member is not None:
        return _after_version(record, member, pod, request, at)
    record = on_pod.joined(record, pod)
    member = record.member(pod.uid)
    if member is None:
        return record
    if record.state in WITHOUT_JOB and pod.node is None and pod.attempt < record.attempt:
        return on_pod.numbering(record, record.attempt, at)
    return _after_version(record, member, pod, request, at)


def _after_version(
    record: Placeholder, member: Member, pod: Pod, request: Request, at: Context
) -> Placeholder:
    """`member`: the Pod as it was known; `request`: what was asked for until then."""
    record = on_pod.with_version(record, member, pod)
    if record.state in OVER:
        return record
    if pod.over:
        return on_pod.after_end(record, pod.uid, at.now)
    if pod.attempt > record.attempt and not on_pod.is_misnumbered(record, pod):
        numbered = on_pod.renumbered(record, pod)
        if numbered is None:
            return on_pod.overtaken(record, pod, at)
        record = numbered
    record = on_pod.with_carried(record, at)
    if pod.node is not None:
        return TABLE[record.state].bound(record, pod, at)
    return _unbound(record, pod, member.pod, request, at)


def _unbound(record: Placeholder, pod: Pod, before: Pod, request: Request, at: Context) -> Placeholder:
    """`before` and `request`: the Pod's last version, and what was asked for until then."""
    now, by = at.now, at.now + at.rules.unbound_deadline
    if pod.obstacle is not None and record.state in ASKED:
        cause = ConditionReason(Reason.CLAIM_NOT_READY, pod.obstacle)
        return record.move(State.REPLACING, now, cause=cause)
    if record.unbound_by < inf and before.provisioned_on and not pod.provisioned_on:
        record = record._replace(unbound_by=by)
    if record.request != request:
        return on_pod.awaited(_changed(record, request, at), pod, at)
    return on_pod.unbound(record, pod, before, at)


def _changed(record: Placeholder, before: Request, at: Context) -> Placeholder:
    if record.request == before:
        return record
    return TABLE[record.state].changed(record, before, at)
