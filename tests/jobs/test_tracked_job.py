"""Tests of a job's phases, and of the news from a poll in each phase."""

from typing import Any

import pytest

from extender.jobs.phase import OVER, PHASE_MOVES, Phase
from extender.jobs.poll import News, polled
from extender.jobs.tracked_job import IllegalPhase, TrackedJob
from extender.jobs.verdict import TAKEN
from slurm_client.job_state import UNKNOWN_STATE, JobState

RUNNING, PENDING, ENDED = JobState("RUNNING"), JobState("PENDING"), JobState("COMPLETED")
CANCELLED, FAILED, SUSPENDED = JobState("CANCELLED"), JobState("FAILED"), JobState("SUSPENDED")


def in_phase(phase: Phase, **fields: Any) -> TrackedJob:
    return TrackedJob(id=1, phase=phase, verdict=TAKEN)._replace(**fields)


@pytest.mark.parametrize(
    ("phase", "state", "news"),
    [
        (Phase.PENDING, PENDING, None),
        (Phase.PENDING, RUNNING, News.STARTED),
        (Phase.PENDING, ENDED, News.ENDED),
        (Phase.PENDING, CANCELLED, News.DOUBTFUL),
        (Phase.PENDING, FAILED, News.DOUBTFUL),
        (Phase.RUNNING, RUNNING, None),
        (Phase.RUNNING, ENDED, News.ENDED),
        (Phase.RUNNING, SUSPENDED, News.ENDED),
        (Phase.RUNNING, PENDING, News.ENDED),
        (Phase.RUNNING, CANCELLED, News.DOUBTFUL),
        (Phase.SUSPECT, FAILED, News.DOUBTFUL),
        (Phase.ENDING, RUNNING, None),
        (Phase.ENDING, CANCELLED, News.ENDED),
        (Phase.ENDED, RUNNING, News.RESTORED),
        (Phase.ENDED, PENDING, News.RESTORED),
        (Phase.ENDED, SUSPENDED, News.RESTORED),
        (Phase.ENDED, ENDED, None),
        (Phase.ASKED, RUNNING, News.DOUBTFUL),
    ],
)
def test_poll_brings_news_without_bound_pods(phase: Phase, state: JobState, news: News | None) -> None:
    assert polled(in_phase(phase), state, 3, bound=False) == (in_phase(phase), news)


@pytest.mark.parametrize(("state", "news"), [(CANCELLED, News.ENDED), (PENDING, News.DOUBTFUL)])
def test_poll_brings_other_news_with_bound_pods(state: JobState, news: News) -> None:
    """A poll that shows a cancelled job evicts the job's Pods at once. If the job waits again, Slurm may
    have forgotten the start, so the news is doubtful."""
    assert polled(in_phase(Phase.RUNNING), state, 3, bound=True)[1] is news


def test_poll_doubts_the_end_of_an_unread_job() -> None:
    unread = TrackedJob(id=1, phase=Phase.RUNNING)
    assert polled(unread, ENDED, 3, bound=True)[1] is News.DOUBTFUL


def test_job_is_lost_after_several_polls_in_a_row_without_the_job() -> None:
    job = in_phase(Phase.RUNNING)
    for news in (None, None, News.LOST):
        assert (polled(job, None, 3, bound=True)[1]) is news
        job, _ = polled(job, None, 3, bound=True)
    seen, _ = polled(job, RUNNING, 3, bound=True)
    assert seen.mistrust.misses == 0


def test_poll_without_a_readable_state_changes_nothing() -> None:
    job = in_phase(Phase.RUNNING, mistrust=TrackedJob().mistrust._replace(misses=1))
    assert polled(job, JobState(UNKNOWN_STATE), 3, bound=True) == (job, None)


def test_job_makes_only_the_moves_of_the_table() -> None:
    """Each move stores its time. After a move, the job counts as read."""
    for before in Phase:
        job = in_phase(before, unread=True)
        assert job.to(before, 7.0) == job
        for after in set(Phase) - {before}:
            if after in PHASE_MOVES[before]:
                assert job.to(after, 7.0) == job._replace(phase=after, since=7.0, unread=False)
            else:
                with pytest.raises(IllegalPhase, match=f"{before} -> {after}"):
                    job.to(after, 7.0)


def test_job_is_over_in_the_phases_without_a_job_to_end() -> None:
    assert {phase for phase in Phase if in_phase(phase).over} == OVER
