"""Jobs of others in Slurm, for Pods to be placed beside or behind."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from typing import Final

from deploy.local.cluster import Cluster
from loadtest.arms import CPUS_PER_NODE, MEMORY_MB
from loadtest.crowd import Broken
from loadtest.together import for_each
from slurm_client.model import JobSpec
from slurm_client.rest import SlurmRest

_NODES: Final = 50
_PARTITION: Final = "native"
_SIZE: Final = f"CPUs={CPUS_PER_NODE} RealMemory={MEMORY_MB}"
SLURM_CONF: Final = (
    f"NodeName=native-[1-{_NODES}] NodeAddr=127.0.0.1 {_SIZE} State=EXTERNAL",
    f"PartitionName={_PARTITION} Nodes=native-[1-{_NODES}] MaxTime=INFINITE State=UP",
)
"""Nodes that Kubernetes knows nothing of, in a partition of their own."""

_FIRST_ID: Final = 100
_CONNECTIONS: Final = 16
_SUBMITTED_WITHIN_S: Final = 120.0


def elsewhere(count: int) -> Iterator[JobSpec]:
    """Of one CPU each, in the partition of SLURM_CONF: 800 of them find room, others wait for it."""
    return (JobSpec("native", cpus=1, memory_mb=100, partition=_PARTITION) for _ in range(count))


def before(count: int) -> Iterator[JobSpec]:
    """One that fills a node of the Pods' partition, and so many that wait for it: whatever comes after
    them is for the backfill scheduler to place."""
    whole = JobSpec("native", CPUS_PER_NODE, 1000, required_nodes=("external-1",))
    return (whole for _ in range(1 + count))


async def submit(cluster: Cluster, jobs: Iterable[JobSpec]) -> None:
    """Raises SlurmError, or Broken where it takes very long."""
    async with aclosing(SlurmRest(cluster.slurmrestd_url, cluster.token_file)) as slurm:

        async def submit_one(numbered: tuple[int, JobSpec]) -> None:
            job_id, job = numbered
            await slurm.submit(job, job_id)

        try:
            async with asyncio.timeout(_SUBMITTED_WITHIN_S):
                await for_each(enumerate(jobs, _FIRST_ID), submit_one, _CONNECTIONS)
        except TimeoutError:
            raise Broken(f"native jobs are not submitted after {_SUBMITTED_WITHIN_S:g} s") from None
