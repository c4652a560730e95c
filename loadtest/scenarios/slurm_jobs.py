"""Jobs that no Pod asks for: those of others, and Slurm by itself as a ceiling."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from typing import Final

from deploy.local.cluster import Cluster
from loadtest.harness.bursts import SIZES, Burst
from loadtest.harness.command import Broken
from loadtest.harness.concurrently import for_each, until
from loadtest.harness.meters import MeterReading, cpu_by_component
from loadtest.harness.slurm import all_ended
from loadtest.harness.variants import NodeSize
from loadtest.scenarios.table import NATIVE_PARTITION, Path, Scenario
from slurm_client.model import JobSpec
from slurm_client.rest import SlurmRest

_FIRST_NATIVE: Final = 100
_FIRST_ID: Final = 1 << 25
_CONNECTIONS: Final = 16
_LOOK_S: Final = 0.05
_SUBMITTED_WITHIN_S: Final = 120.0
_RUNNING_WITHIN_S: Final = 300.0


def native_jobs(scenario: Scenario) -> Iterator[JobSpec]:
    """Those `native`, of one CPU each: 800 of them find room, others wait for it. And one that fills a
    node of the Pods' partition, with those that wait for it `before`: whatever comes after them is for
    the backfill scheduler to place."""
    elsewhere = JobSpec("native", cpus=1, memory_mb=100, partition=NATIVE_PARTITION)
    whole = JobSpec("native", NodeSize().cpus, 1000, required_nodes=("external-1",))
    yield from itertools.repeat(elsewhere, scenario.native or 0)
    yield from itertools.repeat(whole, 1 + scenario.before if scenario.before else 0)


async def submit(cluster: Cluster, jobs: Iterable[JobSpec]) -> None:
    """Raises SlurmError, or Broken where it takes very long."""
    async with aclosing(SlurmRest(cluster.slurmrestd_url, cluster.token_file)) as slurm:

        async def submit_one(numbered: tuple[int, JobSpec]) -> None:
            job_id, job = numbered
            await slurm.submit(job, job_id)

        try:
            async with asyncio.timeout(_SUBMITTED_WITHIN_S):
                await for_each(enumerate(jobs, _FIRST_NATIVE), submit_one)
        except TimeoutError:
            raise Broken(f"native jobs are not submitted after {_SUBMITTED_WITHIN_S:g} s") from None


class SlurmAlone:
    """The jobs of the Pods, by slurmrestd alone, until all of them run: on a cluster without Kubernetes,
    with no jobs in it between the calls. To be closed."""

    def __init__(self, cluster: Cluster, path: Path) -> None:
        self._cluster = cluster
        self._path = path
        self._numbers = itertools.count(_FIRST_ID)
        self._calls, self._bytes = Counter[str](), Counter[str]()
        self._slurm = SlurmRest(
            *(cluster.slurmrestd_url, cluster.token_file), concurrency=_CONNECTIONS, heard=self._heard
        )

    async def aclose(self) -> None:
        await self._slurm.aclose()

    async def burst(self, size: int) -> Burst:
        """So many jobs; what a Burst calls bound is running here."""
        before = self._reading()
        jobs = list(itertools.islice(self._numbers, size))
        left, asked, running = set(jobs), dict[int, float](), dict[int, float]()

        async def create(job: int) -> None:
            asked[job] = time.perf_counter()
            if self._path is Path.FAST:
                await self._slurm.allocate(_job(job), job)
                running[job] = time.perf_counter()
            else:
                await self._slurm.submit(_job(job), job)

        async def all_running() -> bool:
            """Those that were allocated at once are looked at as well: one look says that they run."""
            states = await self._slurm.states(left)
            now = time.perf_counter()
            for job in [job for job, state in states.items() if state.running]:
                running.setdefault(job, now)
                left.remove(job)
            return not left

        begin = time.perf_counter()
        await for_each(jobs, create, _CONNECTIONS)
        created = time.perf_counter()
        await until(all_running, f"{size} jobs run", _RUNNING_WITHIN_S, _LOOK_S)
        spent = self._reading().since(before)
        await for_each(jobs, self._slurm.cancel, _CONNECTIONS)
        await all_ended(self._slurm, jobs, _RUNNING_WITHIN_S)
        took = tuple((running[job] - asked[job]) * 1000 for job in jobs)
        return Burst(max(running.values()) - begin, created - begin, took, spent)

    def _reading(self) -> MeterReading:
        return MeterReading(cpu_by_component(self._cluster), dict(self._calls), dict(self._bytes))

    def _heard(self, call: str, sent: int, received: int) -> None:
        self._calls[call] += 1
        self._bytes[call] += sent + received


def _job(number: int) -> JobSpec:
    """As the extender would ask for the Pod of that number."""
    cpus, gpus = SIZES[number % len(SIZES)]
    gres = (("gpu", gpus),) if gpus else ()
    return JobSpec(f"pod-{number}@default", cpus, cpus * 1024, gres)
