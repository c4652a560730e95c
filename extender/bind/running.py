"""Whether jobs run, asked at the last moment: binds that come together share one question."""

from __future__ import annotations

import asyncio

from slurm_client.model import JobState
from slurm_client.protocol import Slurm


class RunningJobs:
    """One question is under way at a time; who comes meanwhile is in the next."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._next: dict[int, asyncio.Future[bool]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def runs(self, job_id: int) -> bool:
        """Tells whether Slurm says, after this call began, that a job is RUNNING. Raises SlurmError."""
        if job_id not in self._next:
            self._next[job_id] = asyncio.get_running_loop().create_future()
        answer = self._next[job_id]
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())
        return await asyncio.shield(answer)

    async def _ask(self) -> None:
        while self._next:
            asked, self._next = self._next, {}
            try:
                states = await self._slurm.states(asked)
            except Exception as error:  # noqa: BLE001 -- it is raised where the answer is waited for
                for answer in asked.values():
                    answer.set_exception(error)
            else:
                for job_id, answer in asked.items():
                    answer.set_result(states.get(job_id, JobState("")).running)
        self._asking = None
