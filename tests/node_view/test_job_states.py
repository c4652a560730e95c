"""Concurrent callers share a request for jobs' states. The request starts after the callers' calls."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import cast

import pytest

from extender.node_view.job_states import JobStates
from slurm_client.errors import RetryLater, SlurmError
from slurm_client.job_state import JobState
from slurm_client.protocol import Slurm

RUNNING = JobState("RUNNING")


class FakeSlurm:
    """Records each request, and answers when `answers` is set."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.answers = asyncio.Event()
        self.error: SlurmError | None = None

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        self.asked.append(sorted(ids))
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return dict.fromkeys(ids, RUNNING)


async def test_calls_during_a_request_share_the_next_request() -> None:
    slurm = FakeSlurm()
    states = JobStates(cast(Slurm, slurm))
    first = [asyncio.ensure_future(states.of([job_id])) for job_id in (1, 2)]
    await asyncio.sleep(0.001)
    then = [asyncio.ensure_future(states.of([job_id])) for job_id in (2, 3)]
    await asyncio.sleep(0.001)
    assert slurm.asked == [[1, 2]]
    slurm.answers.set()
    answers = await asyncio.gather(*first, *then)
    assert slurm.asked == [[1, 2], [2, 3]]
    assert all(answer[job_id] is RUNNING for answer, job_id in zip(answers, (1, 2, 2, 3), strict=True))


async def test_empty_list_of_jobs_makes_no_request() -> None:
    assert await JobStates(cast(Slurm, FakeSlurm())).of([]) == {}


async def test_error_is_raised_only_for_the_callers_of_the_failed_request() -> None:
    slurm = FakeSlurm()
    slurm.answers.set()
    slurm.error = RetryLater("down")
    states = JobStates(cast(Slurm, slurm))
    for asked in [asyncio.ensure_future(states.of([job_id])) for job_id in (1, 2)]:
        with pytest.raises(RetryLater):
            await asked
    assert slurm.asked == [[1, 2]]
    slurm.error = None
    assert await states.of([1]) == {1: RUNNING}


async def test_cancelled_caller_does_not_affect_other_callers() -> None:
    slurm = FakeSlurm()
    states = JobStates(cast(Slurm, slurm))
    leaves, stays = (asyncio.ensure_future(states.of([job_id])) for job_id in (1, 2))
    await asyncio.sleep(0.001)
    leaves.cancel()
    slurm.answers.set()
    assert (await stays)[2] is RUNNING
    with pytest.raises(asyncio.CancelledError):
        await leaves


async def test_next_request_waits_for_the_pause_chosen_at_the_last_request() -> None:
    slurm, rested = FakeSlurm(), asyncio.Event()
    slurm.answers.set()
    pauses, given = list[float](), list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await rested.wait()

    def rest_s(before: float) -> float:
        given.append(before)
        return before + 1.0

    states = JobStates(cast(Slurm, slurm), rest_s, pause)
    await states.of([1])
    then = asyncio.ensure_future(states.of([2]))
    await asyncio.sleep(0.001)
    assert (slurm.asked, pauses) == ([[1]], [1.0])
    rested.set()
    await then
    await asyncio.sleep(0.001)
    assert (given, pauses) == ([0.0, 1.0], [1.0, 2.0])
    await states.of([3])  # long after the earlier calls
    assert given[-1] == 0.0
