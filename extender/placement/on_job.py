"""What Slurm's news of a job's state means for its placeholder (each function in the table returns the
next record), and how the job's end is told.

Absence is not news (invariant I5): only several confirmations from a healthy Slurm count, and never
against a Pod that runs.
"""

from extender.jobs.verdict import NOT_READ
from extender.record.condition_reason import ConditionReason
from extender.record.config import Context
from extender.record.job_tracking import Doubt
from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.model import Job, JobState
from wellknown.names import Reason

# Ends that are Slurm's doing and not a person's: a Pod that has not started is placed again. FAILED is a
# job that slurmctld has started and cannot answer for any more ("response msg send failure, killing").
PLACE_AGAIN = frozenset({"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "FAILED"})
# Ends of a submission that never ran: its id is used up, and means nothing else.
FAILED_BEFORE_START = frozenset({"FAILED", "BOOT_FAIL"})

FORESEEN = frozenset({Reason.SLURM_JOB_TIMEOUT, Reason.SLURM_JOB_DEADLINE, Reason.SLURM_JOB_COMPLETED})
"""Reasons of ends that were to come from the start: by what was asked for with the job, or by itself."""
ENDS = {
    "CANCELLED": ConditionReason(Reason.SLURM_JOB_CANCELLED, "was cancelled in Slurm"),
    "PREEMPTED": ConditionReason(Reason.SLURM_JOB_PREEMPTED, "was preempted by Slurm"),
    "TIMEOUT": ConditionReason(Reason.SLURM_JOB_TIMEOUT, "reached its time limit in Slurm"),
    "DEADLINE": ConditionReason(Reason.SLURM_JOB_DEADLINE, "reached its deadline in Slurm"),
    "NODE_FAIL": ConditionReason(Reason.SLURM_NODE_FAILED, "lost its node in Slurm"),
    "BOOT_FAIL": ConditionReason(Reason.SLURM_NODE_FAILED, "lost its node in Slurm while it booted"),
    "COMPLETED": ConditionReason(Reason.SLURM_JOB_COMPLETED, "was completed in Slurm"),
    "SUSPENDED": ConditionReason(Reason.SLURM_JOB_SUSPENDED, "was suspended in Slurm"),
    "PENDING": ConditionReason(Reason.SLURM_JOB_REQUEUED, "was requeued in Slurm"),
}
OTHER_END = ConditionReason(Reason.SLURM_JOB_ENDED, "ended in Slurm")
LOST = ConditionReason(Reason.SLURM_JOB_LOST, "is not known to Slurm any more")


def end_of(job_id: int | None, state: JobState) -> ConditionReason:
    """Returns why a job no longer holds its resources, in words for the Pod's author."""
    known = ENDS.get("SUSPENDED" if state.suspended else state.base, OTHER_END)
    told = JobState(state.base, state.flags - {"COMPLETING"})  # which says nothing of its end
    return ConditionReason(known.reason, f"Slurm job {job_id} {known.message} ({told.text})")


def failed_before_start(job: Job) -> bool:
    """Tells whether a job is what a refused immediate allocation leaves behind."""
    return job.state.base in FAILED_BEFORE_START and not job.nodes


# A poll said this state


def waiting_polled(record: Placeholder, state: JobState, at: Context) -> Placeholder:
    """QUEUED: it has started, or it ended before it did."""
    if state.running:
        return record.move(State.ALLOCATED, at.now)
    if state.base in (*FAILED_BEFORE_START, "CANCELLED"):  # what it says is read first
        return record.move(State.SUBMITTING, at.now).with_job(doubt=Doubt.UNREAD)
    return ended(record, state, at) if state.ended else record


def running_polled(record: Placeholder, state: JobState, at: Context) -> Placeholder:
    """ALLOCATED, BOUND: it runs no more, or somebody else's job has its id by now."""
    bound = record.state is State.BOUND
    gone = state.ended or state.suspended or state.pending
    foreign = not record.job.is_ours and (state.ended or state.suspended)
    # By a person, or by a slurmd that cannot start it.
    cancelled = state.base == "CANCELLED" and not bound
    if state.base in FAILED_BEFORE_START or foreign or cancelled or (bound and state.pending):
        return in_doubt(record, at)
    return ended(record, state, at) if gone else record


def released_polled(record: Placeholder, state: JobState, at: Context) -> Placeholder:
    """REPLACING, EVICTING, RELEASING: its end is all that matters."""
    return over(record, at) if state.ended else record


def tombstone_polled(record: Placeholder, state: JobState, at: Context) -> Placeholder:
    """DONE: a killed slurmctld has brought it back."""
    if state.ended or not (state.running or state.pending):
        return record
    return record.move(State.RELEASING, at.now).with_job(over_since=None, verdict=NOT_READ)


def in_doubt(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record with its job to be read; that may have been planned as a matter of routine."""
    if record.job.doubt is Doubt.SUSPECT:
        return record
    return record._replace(job=record.job.suspect(at.now)).with_retry(not_before=0.0)


def ended(record: Placeholder, state: JobState, at: Context) -> Placeholder:
    """Returns the record after its job was found to run no more."""
    cause = end_of(record.job.id, state)
    again = record.state is not State.BOUND and (state.base in PLACE_AGAIN or not state.ended)
    moved = record.replaced(at.now, cause) if again else record.move(State.EVICTING, at.now, cause=cause)
    return moved.with_job(over_since=0.0 if state.ended else None)


def over(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record after its job's end was learned."""
    return record.with_job(over_since=at.now)


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
    return record.unclaimed().move(State.SUBMITTING, at.now).with_asked(immediate=False)


def allocated_lost(record: Placeholder, at: Context) -> Placeholder:
    """ALLOCATED: its Binding may yet arrive."""
    cause = ConditionReason(LOST.reason, f"Slurm job {record.job.id} {LOST.message}")
    return record.unclaimed().replaced(at.now, cause).with_job(over_since=0.0, lost=True)


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
    told = record._replace(cause=ConditionReason(LOST.reason, words)).with_retry(not_before=0.0)
    return told.with_job(lost=True, doubt=Doubt.NONE)
