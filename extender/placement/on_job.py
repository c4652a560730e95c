"""What Slurm's news of a job means for its placeholder: each function returns the next record.

Absence is not news (invariant I5): only several confirmations from a healthy Slurm count, and never
against a Pod that runs.
"""

from __future__ import annotations

from extender.placement.condition_reason import ConditionReason
from extender.placement.config import Context
from extender.placement.job_end import (
    FAILED_BEFORE_START,
    LOST,
    PLACE_AGAIN,
    PREEMPTED,
    end_of,
)
from extender.placement.job_tracking import NodeCheck
from extender.placement.placeholder import Placeholder
from extender.placement.states import State
from slurm_client.model import UNKNOWN_STATE, Job, JobState

_RELEASED = frozenset({State.RELEASING, State.REPLACING, State.EVICTING})


def after_poll(placeholder: Placeholder, state: JobState | None, at: Context) -> Placeholder:
    """Returns the record after a poll said this state, or (None) did not know the job."""
    if state is None:
        return _missed(placeholder, at)
    if state.base == UNKNOWN_STATE:  # it could not be read, or understood
        return placeholder
    back = placeholder.job.lost and placeholder.state is State.BOUND
    if placeholder.job.misses or placeholder.job.lost:
        placeholder = placeholder.with_job(misses=0, lost=False)
    if back:  # or its id is another's by now
        return _in_doubt(placeholder, at)
    if placeholder.state in _RELEASED:
        return _over(placeholder, at) if state.ended else placeholder
    if placeholder.state is State.DONE:
        revived = not state.ended and (state.running or state.pending)
        if not revived:
            return placeholder
        return placeholder.move(State.RELEASING, at.now).with_job(over=False, owned=False)
    return while_live(placeholder, state, at)


def _missed(placeholder: Placeholder, at: Context) -> Placeholder:
    if placeholder.retry.in_flight:  # it may be a submission that Slurm has not seen yet
        return placeholder
    missed = placeholder.with_job(misses=placeholder.job.misses + 1)
    return lost(missed, at) if missed.job.misses >= at.rules.confirmations else missed


def while_live(placeholder: Placeholder, state: JobState, at: Context) -> Placeholder:
    match placeholder.state:
        case State.QUEUED if state.running:
            return placeholder.move(State.ALLOCATED, at.now)
        case State.QUEUED if state.base in (
            *FAILED_BEFORE_START,
            "CANCELLED",
        ):  # what it says is read first
            return placeholder.move(State.SUBMITTING, at.now).with_job(must_read=True)
        case State.ALLOCATED | State.BOUND if state.base in FAILED_BEFORE_START:
            return _in_doubt(placeholder, at)
        case State.QUEUED if state.ended:
            return ended(placeholder, state, at)
        case State.ALLOCATED | State.BOUND if not placeholder.job.owned and (
            state.ended or state.suspended
        ):
            return _in_doubt(placeholder, at)  # the id may be another's by now
        case State.BOUND if state.pending:
            return _in_doubt(placeholder, at)
        case State.ALLOCATED | State.BOUND if state.ended or state.suspended or state.pending:
            return ended(placeholder, state, at)
    return placeholder


def _in_doubt(placeholder: Placeholder, at: Context) -> Placeholder:
    """It may have been about to be read as a matter of routine."""
    if placeholder.job.node_check is NodeCheck.SUSPECT:
        return placeholder
    return placeholder._replace(job=placeholder.job.suspect(at.now)).with_retry(not_before=0.0)


def ended(placeholder: Placeholder, state: JobState, at: Context) -> Placeholder:
    cause = end_of(placeholder.job.id, state)
    unbound = placeholder.state is not State.BOUND
    again = unbound and (state.base in PLACE_AGAIN or not state.ended)
    if again:
        return placeholder.replaced(at.now, cause).with_job(over=state.ended)
    return placeholder.move(State.EVICTING, at.now, cause=cause).with_job(over=state.ended)


def after_grace(placeholder: Placeholder, job: Job, at: Context) -> Placeholder:
    """Returns the record after its job was read while Slurm preempts it. Its Pod is told to leave at the
    start of the job's GraceTime: it may need all of that for its own grace. Slurm never calls a
    preemption off, nor lets anybody put its end off (24.11, 26.05)."""
    bound = placeholder.state is State.BOUND and placeholder.job.id == job.id
    if not bound or placeholder.leaving or job.preempt_time is None or not job.state.running:
        return placeholder
    told = f"Slurm job {job.id} is being preempted: its GraceTime to leave has begun"
    cause = ConditionReason(PREEMPTED, told)
    return placeholder.move(State.EVICTING, at.now, cause=cause)


def lost(placeholder: Placeholder, at: Context) -> Placeholder:
    placeholder = placeholder.unclaimed()
    match placeholder.state:
        case State.QUEUED:
            return placeholder.move(State.SUBMITTING, at.now).with_job(immediate=False)
        case State.ALLOCATED:
            cause = ConditionReason(LOST.reason, f"Slurm job {placeholder.job.id} {LOST.message}")
            return placeholder.replaced(at.now, cause).with_job(over=True, lost=True)
        case State.BOUND if not placeholder.leaving:
            return placeholder if placeholder.job.lost else to_ask_again(placeholder)
        case State.REPLACING:  # its Binding may yet arrive
            return _over(placeholder, at).with_job(lost=True)
        case State.RELEASING | State.EVICTING:
            return _over(placeholder, at)
    return placeholder


def _over(placeholder: Placeholder, at: Context) -> Placeholder:
    return placeholder.with_job(over=True, over_since=at.now)


def to_ask_again(placeholder: Placeholder) -> Placeholder:
    """Returns the record of a Pod that runs (invariant I5) though Slurm does not know its job."""
    words = f"Slurm job {placeholder.job.id} {LOST.message}: another is asked for where the Pod runs"
    lost = ConditionReason(LOST.reason, words)
    return (
        placeholder._replace(cause=lost)
        .with_job(lost=True, node_check=NodeCheck.VERIFIED)
        .with_retry(not_before=0.0)
    )
