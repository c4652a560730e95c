"""The states of jobs at the moment of a bind: binds that come together share one call to Slurm.

kube-scheduler binds in the background, one Pod after the other, a few milliseconds apart: a call for
each would cost as much as their allocations did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from slurm_client.model import UNKNOWN_STATE, JobState
from slurm_client.protocol import Slurm

_PROLOG_S = (0.01, 0.05, 0.1, 0.2, 0.4, 0.8)
_RARE_S = 0.01  # so long after a question the next may be asked
_BURST_S = 0.05  # and so long while Pods come fast: by then some four share a question
_BEGINS = 2  # so many binds wait after a short pause where they come fast: above some 100 a second
_GOES_ON = 3  # and after a long one, as long as they do: 60 a second
_NOT_KNOWN = JobState(UNKNOWN_STATE)


class _Question:
    """The jobs of one call to Slurm, and its answer."""

    def __init__(self) -> None:
        self.job_ids: dict[int, None] = {}
        self.answer: asyncio.Future[Mapping[int, JobState]] = asyncio.get_running_loop().create_future()


class RunningJobs:
    """One call to Slurm is under way at a time; binds that come until a moment after it share the
    next."""

    def __init__(self, slurm: Slurm, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._slurm = slurm
        self._pause = pause
        self._next: _Question | None = None
        self._binds = 0  # of the binds that wait for it, not of the jobs beside theirs
        self._asking: asyncio.Task[None] | None = None

    async def runs(self, job_id: int) -> bool:
        """Tells whether Slurm says, after this call began, that a job is RUNNING. Waits a moment for a
        job whose Prolog still runs: kube-scheduler would not come back as soon. Raises SlurmError."""
        for pause in _PROLOG_S:
            self._binds += 1
            state = (await self._states((job_id,)))[0]
            if "CONFIGURING" not in state.flags:
                break
            await asyncio.sleep(pause)
        return state.running

    async def hold_nodes(self, job_ids: Collection[int]) -> bool:
        """Tells whether Slurm says, after this call began, that all of these jobs still have their
        nodes. Raises SlurmError."""
        return not job_ids or all(state.holds_nodes for state in await self._states(job_ids))

    async def _states(self, job_ids: Collection[int]) -> list[JobState]:
        """Returns the states of jobs. All requests in one turn of the event loop share one call."""
        if self._next is None:
            self._next = _Question()
        question = self._next
        question.job_ids.update(dict.fromkeys(job_ids))
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())
        states = await asyncio.shield(question.answer)
        return [states.get(job_id, _NOT_KNOWN) for job_id in job_ids]

    async def _ask(self) -> None:
        burst = False
        while (question := self._next) is not None:
            self._next = None
            burst = self._binds >= (_GOES_ON if burst else _BEGINS)
            self._binds = 0
            try:
                question.answer.set_result(await self._slurm.states(question.job_ids))
            except Exception as error:  # noqa: BLE001 -- it is raised where the answer is waited for
                question.answer.set_exception(error)
            await self._pause(_BURST_S if burst else _RARE_S)
        self._asking = None
