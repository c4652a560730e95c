"""One arm at work: its cluster up, bursts and single Pods timed, what became of them checked."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import psutil

from deploy.local.cluster import Cluster
from deploy.local.demo.findings import difference
from deploy.local.demo.pods import Sighting
from deploy.local.demo.slurm import Slurm
from loadtest.arms import Arm
from loadtest.crowd import Broken, Crowd, Wanted
from loadtest.figures import Burst

# CPUs and GPUs of the Pods, in turn: 1.5 CPUs and half a GPU on average.
SIZES: Final = ((1, 0), (2, 1), (1, 1), (2, 0))

_BOUND_WITHIN_S: Final = 90.0
_GONE_WITHIN_S: Final = 60.0
_SETTLE_S: Final = 0.5
_BETWEEN_IDLE_S: Final = 0.1


@dataclass(slots=True)
class Bench:
    """An arm whose cluster is up, with no Pods between the calls."""

    arm: Arm
    cluster: Cluster
    crowd: Crowd
    _numbers: Iterator[int]

    @classmethod
    @asynccontextmanager
    async def of(cls, arm: Arm, cluster: Cluster) -> AsyncIterator["Bench"]:
        async with Crowd.of(cluster) as crowd:
            yield cls(arm, cluster, crowd, itertools.count(1))

    async def burst(self, size: int) -> Burst:
        """As many Pods as that at once; the clock runs from the first create call to the last binding
        seen. CPU is counted until what follows the last binding is over too."""
        before = self._cpu_s()
        pods = await self.crowd.create(self._wanted(size))
        created = time.perf_counter()
        await self.crowd.all_bound(_BOUND_WITHIN_S)
        await asyncio.sleep(_SETTLE_S)
        spent = {name: now - before[name] for name, now in self._cpu_s().items()}
        await self._check_and_clear(pods)
        begin = min(pod.created for pod in pods)
        end = max(pod.bound or 0.0 for pod in pods)
        bound_ms = tuple(pod.bound_ms or 0.0 for pod in pods)
        return Burst(end - begin, created - begin, bound_ms, spent)

    async def idle(self, count: int) -> list[float]:
        """Pods one after the other; returns the milliseconds from create call to binding seen."""
        pods = []
        for each in self._wanted(count):
            pods += await self.crowd.create([each])
            await self.crowd.all_bound(_BOUND_WITHIN_S)
            await asyncio.sleep(_BETWEEN_IDLE_S)  # what follows a binding is not the next Pod's
        await self._check_and_clear(pods)
        return [pod.bound_ms or 0.0 for pod in pods]

    def _wanted(self, count: int) -> list[Wanted]:
        """Names are never used twice: a late word about an old Pod is not taken for a new one's."""
        numbers = itertools.islice(self._numbers, count)
        return [Wanted(f"pod-{number}", *SIZES[number % len(SIZES)]) for number in numbers]

    def _cpu_s(self) -> dict[str, float]:
        """What each component has used so far."""
        return {name: cpu_s(self.cluster.pid(name)) for name in self.cluster.status()}

    async def _check_and_clear(self, pods: Sequence[Sighting]) -> None:
        if lost := [pod.name for pod in pods if not pod.holds_node]:
            raise Broken(f"{self.arm.name}: {len(lost)} Pods were bound and hold no Node: {lost[:5]}")
        if self.arm.has_jobs:
            await self._compare_with_squeue(pods)
        await self.crowd.clear(_GONE_WITHIN_S)
        if self.arm.has_jobs:
            await Slurm(self.cluster).until(lambda queue: not queue, "no job left", _GONE_WITHIN_S)

    async def _compare_with_squeue(self, pods: Sequence[Sighting]) -> None:
        queue = await Slurm(self.cluster).queue()
        if found := [told for pod in pods if (told := difference(pod, queue))]:
            raise Broken(f"{len(found)} Pods differ from squeue: {'; '.join(found[:5])}")


def cpu_s(pid: int) -> float:
    """The CPU time of a process and all below it so far, in seconds."""
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(time.user + time.system for time in times)
