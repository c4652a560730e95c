"""The possible ends of a job, and the reason for each end in reports to users."""

from extender.explain.cause import Cause, Kind
from slurm_client.job_state import JobState
from wellknown.names import Reason

PLACE_AGAIN = frozenset({"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "FAILED"})
"""States of a job that Slurm has ended, and not a user. If the Pod has not started, the extender places
the Pod again. FAILED means that slurmctld has started the job, and has then lost control of the job
("response msg send failure, killing")."""
NODE_FAILED = frozenset({"NODE_FAIL", "BOOT_FAIL"})
"""States of a job that has ended because of its node. Either slurmd did not answer for SlurmdTimeout, or
an administrator set the node DOWN, or the node did not boot."""
FORESEEN = frozenset({Reason.SLURM_JOB_TIMEOUT, Reason.SLURM_JOB_DEADLINE, Reason.SLURM_JOB_COMPLETED})
"""Reasons for foreseen ends of jobs. Such a job has reached the time limit or the deadline of its
request, or has ended by itself."""
ENDS = {
    "CANCELLED": Kind.JOB_CANCELLED,
    "PREEMPTED": Kind.JOB_PREEMPTED,
    "TIMEOUT": Kind.JOB_TIMEOUT,
    "DEADLINE": Kind.JOB_DEADLINE,
    "NODE_FAIL": Kind.NODE_FAILED,
    "BOOT_FAIL": Kind.NODE_FAILED_AT_BOOT,
    "COMPLETED": Kind.JOB_COMPLETED,
    "SUSPENDED": Kind.JOB_SUSPENDED,
    "PENDING": Kind.JOB_REQUEUED,
}
OTHER_END = Kind.JOB_ENDED


def end_of(job_id: int | None, state: JobState) -> Cause:
    """Returns the cause that explains to users why a job no longer holds its resources."""
    kind = ENDS.get("SUSPENDED" if state.suspended else state.base, OTHER_END)
    reported = JobState(state.base, state.flags - {"COMPLETING"})  # every ending job is COMPLETING
    return Cause.of(kind, job=job_id, state=reported.text)
