"""Ends of a job, in words for users."""

from extender.record.condition_reason import ConditionReason
from slurm_client.model import JobState
from wellknown.names import Reason

PLACE_AGAIN = frozenset({"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "FAILED"})
"""Ends by Slurm, not by a user: an unstarted Pod is placed again. FAILED: slurmctld has started the job
and lost control ("response msg send failure, killing")."""
FORESEEN = frozenset({Reason.SLURM_JOB_TIMEOUT, Reason.SLURM_JOB_DEADLINE, Reason.SLURM_JOB_COMPLETED})
"""Reasons of ends that follow from the request or from the job."""
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
    """Returns why a job no longer holds its resources."""
    known = ENDS.get("SUSPENDED" if state.suspended else state.base, OTHER_END)
    reported = JobState(state.base, state.flags - {"COMPLETING"})  # a job of any end is COMPLETING
    return ConditionReason(known.reason, f"Slurm job {job_id} {known.message} ({reported.text})")
