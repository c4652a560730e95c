"""What jobs do, asked at the last moment: binds that come together share one question.

kube-scheduler binds in the background, one Pod after the other, a few milliseconds apart: a question for
each would cost as much as their allocations did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from slurm_client.model import UNKNOWN_STATE, JobState
from slurm_client.protocol import Slurm

_PROLOG_S = (0.01, 0.05, 0.1, 0.2, 0.4, 0.8)
_RARE_S = 0.01  # so long after a question the next may be asked
_BURST_S = 0.05  # and so long while Pods come fast: by then some four share a question
_BEGINS = 2  # so many binds wait after a short pause where they come fast: above some 100 a second
_GOES_ON = 3  # and after a long one, as long as they do: 60 a second


class RunningJobs:
    """One question is under way at a time; who comes until a moment later is in the next."""

    def __init__(self, slurm: Slurm, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._slurm = slurm
        self._pause = pause
        self._next: dict[int, asyncio.Future[JobState]] = {}
        self._binds = 0  # of those that wait for it, not of the jobs beside theirs
        self._asking: asyncio.Task[None] | None = None

    async def runs(self, job_id: int) -> bool:
        """Tells whether Slurm says, after this call began, that a job is RUNNING. One whose Prolog runs
        still is waited for a moment: kube-scheduler would not come back as soon. Raises SlurmError."""
        for pause in _PROLOG_S:
            self._binds += 1
            state = await self._answer(job_id)
            if "CONFIGURING" not in state.flags:
                break
            await asyncio.sleep(pause)
        return state.running

    async def hold_nodes(self, job_ids: Collection[int]) -> bool:
        """Tells whether Slurm says, after this call began, that all of these have their nodes still.
        Raises SlurmError."""
        states = await asyncio.gather(*map(self._answer, job_ids))
        return all(state.holds_nodes for state in states)

    def _answer(self, job_id: int) -> Awaitable[JobState]:
        """What is asked for in one turn of the event loop is in one question."""
        if job_id not in self._next:
            self._next[job_id] = asyncio.get_running_loop().create_future()
        answer = self._next[job_id]
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())
        return asyncio.shield(answer)

    async def _ask(self) -> None:
        burst = False
        while self._next:
            asked, self._next = self._next, {}
            burst = self._binds >= (_GOES_ON if burst else _BEGINS)
            self._binds = 0
            try:
                states = await self._slurm.states(asked)
            except Exception as error:  # noqa: BLE001 -- it is raised where the answer is waited for
                for answer in asked.values():
                    answer.set_exception(error)
            else:
                for job_id, answer in asked.items():
                    answer.set_result(states.get(job_id, JobState(UNKNOWN_STATE)))
            await self._pause(_BURST_S if burst else _RARE_S)
        self._asking = None
