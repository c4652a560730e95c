"""Derives the news of a job from a poll of Slurm. A poll reports only the state of a job.

If Slurm does not know a job in a single poll, the job has no news yet (invariant I5). The job counts as
lost only if a healthy Slurm does not know the job in several polls in a row.
"""

from enum import Enum, auto

from extender.jobs.phase import Phase
from extender.jobs.tracked_job import TrackedJob
from slurm_client.job_state import UNKNOWN_STATE, JobState

FAILED_BEFORE_START = frozenset({"FAILED", "BOOT_FAIL"})
"""States of a job that ended without having run. The id of the job cannot be used again."""
_CANCELLED = "CANCELLED"


class News(Enum):
    """News of a job for its workload."""

    STARTED = auto()
    ENDED = auto()
    """The job has ended, or no longer holds its resources."""
    DOUBTFUL = auto()
    """The state alone does not show how the job ended, or whether the job is the workload's. The job
    must be read."""
    LOST = auto()
    RESTORED = auto()
    """A restarted slurmctld has restored a job that was over."""


def polled(
    job: TrackedJob, state: JobState | None, confirmations: int, *, bound: bool
) -> tuple[TrackedJob, News | None]:
    """Returns the job and the news after a poll. `state` is None if Slurm did not know the job.
    `confirmations` is the number of polls in a row after which an unknown job counts as lost. `bound` is
    True if Pods are bound by the job."""
    if state is None:
        misses = job.mistrust.misses + 1
        missed = job._replace(mistrust=job.mistrust._replace(misses=misses))
        return missed, News.LOST if misses >= confirmations else None
    if state.base == UNKNOWN_STATE:
        return job, None
    if job.mistrust.misses:
        job = job._replace(mistrust=job.mistrust._replace(misses=0))
    return job, _news(job, state, bound=bound)


def _news(job: TrackedJob, state: JobState, *, bound: bool) -> News | None:
    match job.phase:
        case Phase.PENDING:
            return _news_of_pending(state)
        case Phase.RUNNING | Phase.SUSPECT:
            return _news_of_running(job, state, bound=bound)
        case Phase.ENDING if state.ended:
            return News.ENDED
        case Phase.ENDED if state.running or state.pending or state.suspended:
            return News.RESTORED
        case Phase.ASKED:
            # The lost job of a bound Pod is back, or another job has the id.
            return News.DOUBTFUL
    return None


def _news_of_pending(state: JobState) -> News | None:
    if state.running:
        return News.STARTED
    if state.base in (*FAILED_BEFORE_START, _CANCELLED):
        return News.DOUBTFUL
    return News.ENDED if state.ended else None


def _news_of_running(job: TrackedJob, state: JobState, *, bound: bool) -> News | None:
    # If the extender has not proven that the job is the workload's, the job may belong to another
    # workload. A cancellation may come from a user, or from a slurmd that could not start the job.
    foreign = not job.is_ours and (state.ended or state.suspended)
    cancelled = state.base == _CANCELLED and not bound
    if state.base in FAILED_BEFORE_START or foreign or cancelled or (bound and state.pending):
        return News.DOUBTFUL
    gone = state.ended or state.suspended or state.pending
    return News.ENDED if gone else None
