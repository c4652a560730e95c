"""The states of jobs for many callers, which share one question to Slurm.

kube-scheduler binds Pods a few milliseconds apart, and the Prologs of 1,000 nodes may ask about one
job."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from slurm_client.model import JobState
from slurm_client.protocol import Slurm


class _Question:
    """The jobs that Slurm is asked about at once, and its answer."""

    def __init__(self) -> None:
        self.job_ids: dict[int, None] = {}
        self.answer: asyncio.Future[Mapping[int, JobState]] = asyncio.get_running_loop().create_future()


class JobStates:
    """Asks one question at a time; calls until the next question begins share that question.

    `rest_s` returns the seconds between an answer and the next question. Its argument is the rest after
    the question just before, or 0."""

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
        """Returns the states of jobs and perhaps more; unknown jobs are absent. Raises SlurmError."""
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
            except Exception as error:  # noqa: BLE001 -- it is raised where the answer is waited for
                question.answer.set_exception(error)
            if rest:
                await self._pause(rest)
        self._asking = None
