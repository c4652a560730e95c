"""One arm at work: its cluster up, bursts and single Pods timed, what became of them checked."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from deploy.local.cluster import Cluster
from deploy.local.demo.findings import difference
from deploy.local.demo.pods import Sighting
from deploy.local.demo.slurm import Slurm
from loadtest.arms import Arm
from loadtest.crowd import Broken, Crowd, Wanted, api_session
from loadtest.figures import Burst
from loadtest.meters import Meters
from loadtest.slurm_log import SlurmLog
from slurm_client.rest import SlurmRest

# CPUs and GPUs of the Pods, in turn: 1.5 CPUs and half a GPU on average.
SIZES: Final = ((1, 0), (2, 1), (1, 1), (2, 0))

_BOUND_WITHIN_S: Final = 90.0
_GONE_WITHIN_S: Final = 60.0
_RUNNING_WITHIN_S: Final = 60.0
_SETTLE_S: Final = 0.5
_BETWEEN_IDLE_S: Final = 0.1
_LOOK_S: Final = 0.1


@dataclass(slots=True)
class Bench:
    """An arm whose cluster is up, with no Pods between the calls."""

    arm: Arm
    cluster: Cluster
    crowd: Crowd
    meters: Meters
    _log: SlurmLog
    _numbers: Iterator[int]

    @classmethod
    @asynccontextmanager
    async def of(cls, arm: Arm, cluster: Cluster) -> AsyncIterator["Bench"]:
        async with api_session(cluster) as session, Crowd.of(cluster) as crowd:
            meters = Meters(cluster, session, extender_counts=arm.has_jobs)
            log = SlurmLog(cluster.logs / "slurmctld.log")
            yield cls(arm, cluster, crowd, meters, log, itertools.count(1))

    async def burst(
        self, size: int, *, per_s: float | None = None, within_s: float = _BOUND_WITHIN_S
    ) -> Burst:
        """As many Pods as that at once, or so many a second; the clock runs from the first create call
        to the last binding seen, `within_s` of the last creation. CPU and the like are counted until
        what follows the last binding is over too: in every arm the kubelets have had their word."""
        before = await self.meters.before()
        pods = await self.crowd.create(self._wanted(size), per_s)
        created = time.perf_counter()
        await self.crowd.all_bound(within_s)
        await self.crowd.all_running(_RUNNING_WITHIN_S)
        await asyncio.sleep(_SETTLE_S)
        placed = await self.meters.after()
        start_bound_ms = self._start_bound_ms(pods)
        await self._check_and_clear(pods)
        await asyncio.sleep(_SETTLE_S)
        released = (await self.meters.after()).since(placed)
        begin = min(pod.created for pod in pods)
        end = max(pod.bound or 0.0 for pod in pods)
        bound_ms = tuple(pod.bound_ms or 0.0 for pod in pods)
        spent = placed.since(before)
        return Burst(end - begin, created - begin, bound_ms, spent, start_bound_ms, released)

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

    def _start_bound_ms(self, pods: Sequence[Sighting]) -> tuple[float, ...]:
        """Of those Pods whose jobs' starts slurmctld's log tells of: all but what 26.05 backfilled."""
        started, clock = self._log.starts(), time.time() - time.perf_counter()
        seen = ((pod.bound, started.get(pod.job_id or 0)) for pod in pods)
        return tuple((bound + clock - start) * 1000 for bound, start in seen if bound and start)

    async def _check_and_clear(self, pods: Sequence[Sighting]) -> None:
        if lost := [pod.name for pod in pods if not pod.holds_node]:
            raise Broken(f"{self.arm.name}: {len(lost)} Pods were bound and hold no Node: {lost[:5]}")
        if self.arm.has_jobs and not self.arm.stub_url:
            await self._compare_with_squeue(pods)
        await self.crowd.clear(_GONE_WITHIN_S)
        if self.arm.has_jobs:
            await self._all_jobs_ended([pod.job_id for pod in pods if pod.job_id is not None])

    async def _compare_with_squeue(self, pods: Sequence[Sighting]) -> None:
        queue = await Slurm(self.cluster).queue()
        if found := [told for pod in pods if (told := difference(pod, queue))]:
            raise Broken(f"{len(found)} Pods differ from squeue: {'; '.join(found[:5])}")

    async def _all_jobs_ended(self, jobs: Sequence[int]) -> None:
        """Also those of the stub, and whatever native jobs there are beside them."""
        url = self.arm.stub_url or self.cluster.slurmrestd_url
        async with aclosing(SlurmRest(url, self.cluster.token_file)) as slurm:
            try:
                async with asyncio.timeout(_GONE_WITHIN_S):
                    while not all(state.ended for state in (await slurm.states(jobs)).values()):  # noqa: ASYNC110
                        await asyncio.sleep(_LOOK_S)  # Slurm tells no news
            except TimeoutError:
                raise Broken(f"{self.arm.name}: jobs of Pods that are gone have not ended") from None
