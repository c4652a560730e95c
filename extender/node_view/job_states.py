"""Reads the states of jobs for many callers, with one shared request to Slurm.

Many callers ask at almost the same time: kube-scheduler binds Pods a few milliseconds apart, and the
Prologs of 1,000 nodes may ask about the same job.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from slurm_client.job_state import JobState
from slurm_client.protocol import Slurm


class _Question:
    """The jobs of one request to Slurm, and the answer."""

    def __init__(self) -> None:
        self.job_ids: dict[int, None] = {}
        self.answer: asyncio.Future[Mapping[int, JobState]] = asyncio.get_running_loop().create_future()


class JobStates:
    """Sends one request at a time. All waiting calls share the next request.

    `rest_s` returns the pause between an answer and the next request, in seconds. The argument of
    `rest_s` is the previous pause, or 0 for the first pause."""

    def __init__(
        self,
        slurm: Slurm,
        rest_s: Callable[[float], float] = lambda _: 0.0,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._slurm = slurm
        self._rest_s = rest_s
        self._pause = pause
        self._next: _Question | None = None
        self._asking: asyncio.Task[None] | None = None

    async def of(self, job_ids: Collection[int]) -> Mapping[int, JobState]:
        """Returns the states of these jobs, and perhaps of other jobs. Jobs that Slurm does not know are
        absent. Raises SlurmError."""
        if not job_ids:
            return {}
        if self._next is None:
            self._next = _Question()
        question = self._next
        question.job_ids.update(dict.fromkeys(job_ids))
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())
        return await asyncio.shield(question.answer)

    async def _ask(self) -> None:
        rest = 0.0
        while (question := self._next) is not None:
            self._next = None
            rest = self._rest_s(rest)
            try:
                question.answer.set_result(await self._slurm.states(question.job_ids))
            except Exception as error:  # noqa: BLE001 -- the waiting callers raise the error
                question.answer.set_exception(error)
            if rest:
                await self._pause(rest)
        self._asking = None
