"""How fast Slurm is by itself: the jobs of the Pods, by slurmrestd alone, until all of them run."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from deploy.local.cluster import Cluster
from loadtest.bench.scenarios import Path
from loadtest.crowd import Broken
from loadtest.figures import Burst
from loadtest.measurement import SIZES
from loadtest.meters import Reading, cpu_by_component
from loadtest.together import for_each
from slurm_client.model import JobSpec
from slurm_client.rest import SlurmRest

_FIRST_ID: Final = 1 << 25
_CONNECTIONS: Final = 16
_LOOK_S: Final = 0.05
_RUNNING_WITHIN_S: Final = 300.0


@dataclass(slots=True)
class Ceiling:
    """A cluster without Kubernetes, and no jobs in it between the calls. To be closed."""

    cluster: Cluster
    path: Path
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(_FIRST_ID))
    _calls: Counter[str] = field(default_factory=Counter)
    _bytes: Counter[str] = field(default_factory=Counter)
    _slurm: SlurmRest = field(init=False)

    def __post_init__(self) -> None:
        self._slurm = SlurmRest(
            self.cluster.slurmrestd_url,
            self.cluster.token_file,
            concurrency=_CONNECTIONS,
            heard=self._heard,
        )

    async def aclose(self) -> None:
        await self._slurm.aclose()

    async def burst(self, size: int) -> Burst:
        """So many jobs; what a Burst calls bound is running here."""
        before = self._reading()
        jobs = list(itertools.islice(self._numbers, size))
        begin = time.perf_counter()
        asked = dict.fromkeys(jobs, begin)
        running = await self._create(jobs, asked)
        created = time.perf_counter()
        await self._until_running(jobs, running)
        spent = self._reading().since(before)
        await self._clear(jobs)
        took = tuple((running[job] - asked[job]) * 1000 for job in jobs)
        return Burst(max(running.values()) - begin, created - begin, took, spent)

    async def _create(self, jobs: Sequence[int], asked: dict[int, float]) -> dict[int, float]:
        """When each was asked for goes into `asked`; returns when those that run at once did."""
        running = dict[int, float]()

        async def create(job: int) -> None:
            asked[job] = time.perf_counter()
            if self.path is Path.FAST:
                await self._slurm.allocate(_job(job), job)
                running[job] = time.perf_counter()
            else:
                await self._slurm.submit(_job(job), job)

        await for_each(jobs, create, _CONNECTIONS)
        return running

    async def _until_running(self, jobs: Sequence[int], running: dict[int, float]) -> None:
        """Those that were allocated at once are looked at as well: one look says that they run."""
        deadline = time.monotonic() + _RUNNING_WITHIN_S
        left = set(jobs)
        while left:
            states = await self._slurm.states(left)
            now = time.perf_counter()
            for job in [job for job, state in states.items() if state.running]:
                running.setdefault(job, now)
                left.remove(job)
            if left and time.monotonic() > deadline:
                raise Broken(f"{len(left)} jobs do not run after {_RUNNING_WITHIN_S:g} s")
            await asyncio.sleep(_LOOK_S)

    async def _clear(self, jobs: Sequence[int]) -> None:
        await for_each(jobs, self._slurm.cancel, _CONNECTIONS)
        await self._until_ended(jobs)

    async def _until_ended(self, jobs: Sequence[int]) -> None:
        while not all(state.ended for state in (await self._slurm.states(jobs)).values()):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)  # Slurm tells no news

    def _reading(self) -> Reading:
        return Reading(cpu_by_component(self.cluster), dict(self._calls), dict(self._bytes))

    def _heard(self, call: str, sent: int, received: int) -> None:
        self._calls[call] += 1
        self._bytes[call] += sent + received


def _job(number: int) -> JobSpec:
    """As the extender would ask for the Pod of that number."""
    cpus, gpus = SIZES[number % len(SIZES)]
    gres = (("gpu", gpus),) if gpus else ()
    return JobSpec(f"default/pod-{number}", cpus, cpus * 1024, gres)
