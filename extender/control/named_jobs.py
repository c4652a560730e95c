"""Jobs that are asked for at once, as their owners', by their names: Slurm chooses their ids.

The name is the lock: Slurm makes no second job of it while one runs. The key, which proves whose a job
is, can be written only afterwards: what happens between the two is found out by `find`.
"""

import asyncio
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import replace
from math import inf

from extender.cluster.read_jobs import read_all
from extender.placement.on_job import failed_before_start
from slurm_client.errors import InvalidRequest, OutcomeUnknown, SlurmError
from slurm_client.model import Job, JobChanges, JobSpec
from slurm_client.protocol import Slurm


class NamedJobs:
    """`ids` are those that are not Slurm's to choose; `known` returns those of jobs that are known to be
    some workload's."""

    def __init__(self, slurm: Slurm, ids: Container[int], known: Callable[[], Container[int]]) -> None:
        self._slurm = slurm
        self._ids = ids
        self._known = known
        self._reading = asyncio.Lock()
        self._read_at = -inf
        self._others: list[Job] = []
        """The jobs that were nobody's when they were read last."""

    async def allocate(self, asked: JobSpec) -> Job:
        """Asks for a job, and writes its key. Raises what `Slurm.allocate_as_owner` raises;
        OutcomeUnknown once there is a job."""
        job_id = await self._slurm.allocate_as_owner(replace(asked, admin_comment=""))
        return await self._signed(job_id, asked)

    async def find(self, asked: JobSpec) -> Job | None:
        """Returns the job that was asked for, with its key; None where Slurm has none. Raises
        SlurmError."""
        own = [job for job in await self._unknown() if _is_of(job, asked)]
        job = min(own, key=lambda each: (each.state.ended, each.id), default=None)
        return None if job is None else await self._signed(job.id, asked)

    async def _signed(self, job_id: int, asked: JobSpec) -> Job:
        try:
            with suppress(InvalidRequest):  # it has ended
                await self._slurm.update(job_id, JobChanges(admin_comment=asked.admin_comment))
            job = await self._slurm.job(job_id)
            if job is not None and (job.name == asked.name or job.user_id == asked.user_id):
                return job  # its owner may have renamed it, or Slurm given it to somebody else
            if job is not None and job.admin_comment == asked.admin_comment:
                # slurmctld was killed since, and the id is another job's, which is nobody's again.
                await self._slurm.update(job_id, JobChanges(admin_comment=""))
        except SlurmError as error:
            raise OutcomeUnknown(f"job {job_id} was made, and then: {error}") from error
        raise OutcomeUnknown(f"job {job_id} was made, and is not there any more")

    async def _unknown(self) -> list[Job]:
        """Reads the jobs that are nobody's, once for all who ask before it begins."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        async with self._reading:
            if self._read_at <= asked_at:
                self._read_at = loop.time()
                states, known = await self._slurm.all_states(), self._known()
                wanted = (one for one in states if one not in self._ids and one not in known)
                self._others = await read_all(wanted, self._slurm)
            return self._others


def _is_of(job: Job, asked: JobSpec) -> bool:
    named = (job.name, job.user_id) == (asked.name, asked.user_id) and not job.admin_comment
    return (named or job.admin_comment == asked.admin_comment) and not failed_before_start(job)
