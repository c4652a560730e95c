"""What Slurm's news of a job's state means for its placeholder: each function returns the next record.

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
    end_of,
)
from extender.placement.job_tracking import NodeCheck
from extender.placement.placeholder import Placeholder
from extender.placement.states import State
from slurm_client.model import Job, JobState
from wellknown.names import Reason

# A poll said this state


def waiting_polled(record: Placeholder, state: JobState, at: Context) -> Placeholder:
    """QUEUED: it has started, or it ended before it did."""
    if state.running:
        return record.move(State.ALLOCATED, at.now)
    if state.base in (*FAILED_BEFORE_START, "CANCELLED"):  # what it says is read first
        return record.move(State.SUBMITTING, at.now).with_job(must_read=True)
    return ended(record, state, at) if state.ended else record


def running_polled(record: Placeholder, state: JobState, at: Context) -> Placeholder:
    """ALLOCATED, BOUND: it runs no more, or somebody else's job has its id by now."""
    bound = record.state is State.BOUND
    gone = state.ended or state.suspended or state.pending
    foreign = not record.job.owned and (state.ended or state.suspended)
    if state.base in FAILED_BEFORE_START or foreign or (bound and state.pending):
        return in_doubt(record, at)
    return ended(record, state, at) if gone else record


def released_polled(record: Placeholder, state: JobState, at: Context) -> Placeholder:
    """REPLACING, EVICTING, RELEASING: its end is all that matters."""
    return over(record, at) if state.ended else record


def tombstone_polled(record: Placeholder, state: JobState, at: Context) -> Placeholder:
    """DONE: a killed slurmctld has brought it back."""
    if state.ended or not (state.running or state.pending):
        return record
    return record.move(State.RELEASING, at.now).with_job(over=False, owned=False)


def in_doubt(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record with its job to be read; that may have been planned as a matter of routine."""
    if record.job.node_check is NodeCheck.SUSPECT:
        return record
    return record._replace(job=record.job.suspect(at.now)).with_retry(not_before=0.0)


def ended(record: Placeholder, state: JobState, at: Context) -> Placeholder:
    """Returns the record after its job was found to run no more."""
    cause = end_of(record.job.id, state)
    unbound = record.state is not State.BOUND
    again = unbound and (state.base in PLACE_AGAIN or not state.ended)
    if again:
        return record.replaced(at.now, cause).with_job(over=state.ended)
    return record.move(State.EVICTING, at.now, cause=cause).with_job(over=state.ended)


def over(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record after its job's end was learned."""
    return record.with_job(over=True, over_since=at.now)


# A poll said that it is being preempted


def told_of_grace(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """BOUND: its Pod is told to leave at the start of the job's GraceTime, since it may need all of that
    for its own grace. Slurm never calls a preemption off, nor lets anybody put its end off (24.11,
    26.05)."""
    if record.job.id != job.id or record.leaving:
        return record
    if job.preempt_time is None or not job.state.running:
        return record
    told = f"Slurm job {job.id} is being preempted: its GraceTime to leave has begun"
    return record.move(State.EVICTING, at.now, cause=ConditionReason(Reason.SLURM_JOB_PREEMPTED, told))


# A healthy Slurm does not know it, again and again


def waiting_lost(record: Placeholder, at: Context) -> Placeholder:
    """QUEUED: it is asked for again."""
    return record.unclaimed().move(State.SUBMITTING, at.now).with_job(immediate=False)


def allocated_lost(record: Placeholder, at: Context) -> Placeholder:
    """ALLOCATED: its Binding may yet arrive."""
    cause = ConditionReason(LOST.reason, f"Slurm job {record.job.id} {LOST.message}")
    return record.unclaimed().replaced(at.now, cause).with_job(over=True, lost=True)


def bound_lost(record: Placeholder, _at: Context) -> Placeholder:
    """BOUND: the Pod runs on, and another job is asked for where it runs."""
    unclaimed = record.unclaimed()
    return unclaimed if record.leaving or record.job.lost else to_ask_again(unclaimed)


def replacing_lost(record: Placeholder, at: Context) -> Placeholder:
    """REPLACING: its Binding may yet arrive."""
    return over(record.unclaimed(), at).with_job(lost=True)


def released_lost(record: Placeholder, at: Context) -> Placeholder:
    """EVICTING, RELEASING: it has ended."""
    return over(record.unclaimed(), at)


def to_ask_again(record: Placeholder) -> Placeholder:
    """Returns the record of a Pod that runs (invariant I5) though Slurm does not know its job."""
    words = f"Slurm job {record.job.id} {LOST.message}: another is asked for where the Pod runs"
    lost = ConditionReason(LOST.reason, words)
    return (
        record._replace(cause=lost)
        .with_job(lost=True, node_check=NodeCheck.VERIFIED)
        .with_retry(not_before=0.0)
    )
