"""Reads many jobs, with one call for each job. A call for several jobs would return only their
states."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from slurm_client.errors import Unreadable
from slurm_client.model import Job
from slurm_client.protocol import Slurm

READERS = 16


async def read_all(job_ids: Iterable[int], slurm: Slurm, readers: int = READERS) -> list[Job]:
    """Returns the jobs with these ids. Leaves out unknown and unreadable jobs. Raises SlurmError."""
    left, jobs = iter(job_ids), list[Job]()

    async def read() -> None:
        for job_id in left:
            with suppress(Unreadable):
                job = await slurm.job(job_id)
                if job is not None:
                    jobs.append(job)

    await asyncio.gather(*(read() for _ in range(readers)))
    return jobs
