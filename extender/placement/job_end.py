"""How jobs end in Slurm, and what that means, in words for a Pod's author."""

from __future__ import annotations

from extender.placement.condition_reason import ConditionReason
from slurm_client.model import Job, JobState
from wellknown.names import Reason

# Ends that are Slurm's doing and not a person's: a Pod that has not started is placed again. FAILED is a
# job that slurmctld has started and cannot answer for any more ("response msg send failure, killing").
PLACE_AGAIN = frozenset({"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "FAILED"})
# Ends of a submission that never ran: its id is burnt, and means nothing else.
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
    told = JobState(state.base, state.flags - {"COMPLETING"})  # which it only is for a moment
    return ConditionReason(known.reason, f"Slurm job {job_id} {known.message} ({told.text})")


def failed_before_start(job: Job) -> bool:
    """Tells whether a job is what a refused immediate allocation leaves behind."""
    return job.state.base in FAILED_BEFORE_START and not job.nodes
