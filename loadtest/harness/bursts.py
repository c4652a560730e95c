"""Loads one variant with bursts of Pods and with single Pods, measures the Pods' times, and checks the
Pods. Also loads Slurm alone, because its speed is the upper limit."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final, TextIO

import aiohttp

from deploy.local.cluster import Cluster
from loadtest.harness.command import Broken
from loadtest.harness.concurrently import AT_A_TIME, for_each, until
from loadtest.harness.meters import MeterReading, Meters, cpu_by_component
from loadtest.harness.pods import Pod, Pods, Wanted, api_session
from loadtest.harness.slurm import all_ended, compare_with_squeue, starts
from loadtest.harness.variants import Placer, Running
from slurm_client.model import JobSpec
from slurm_client.rest.client import SlurmRest

# CPUs and GPUs of the Pods, which have these sizes in turn. The average is 1.5 CPUs and half a GPU.
SIZES: Final = ((1, 0), (2, 1), (1, 1), (2, 0))
WARM_UP: Final = 50
"""Number of Pods in the burst that opens the connections and warms the caches."""

_BOUND_WITHIN_S: Final = 300.0
_FOLLOWS_WITHIN_S: Final = 60.0
"""Time limit for the kubelets' reports that Pods run or are gone, and for the end of cancelled jobs."""
_SETTLE_S: Final = 0.5
_BETWEEN_IDLE_S: Final = 0.1
_FIRST_ID: Final = 1 << 25
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Burst:
    """Many Pods, created at once or at a steady rate.

    * `seconds`: time from the first create call until the watch shows the last binding
    * `creating_s`: time from the first create call to the answer to the last create call
    * `bound_ms`: the time of each Pod from its create call to its binding
    * `start_bound_ms`: the time of each Pod from the start of its job to its binding, if Slurm's log has
      the start
    * `spent`: the reading of the meters for the time until all Pods run
    * `released`: the reading for the time afterwards, until all Pods and jobs are gone
    """

    seconds: float
    creating_s: float
    bound_ms: Sequence[float]
    spent: MeterReading
    start_bound_ms: Sequence[float] = ()
    released: MeterReading | None = None

    @property
    def pods_per_s(self) -> float:
        return len(self.bound_ms) / self.seconds

    @property
    def extender_cpu_ms_per_pod(self) -> float:
        return self.spent.cpu_ms("extender") / len(self.bound_ms)

    @property
    def cpu_ms_per_pod(self) -> float:
        """CPU time of the whole cluster, divided by the number of Pods. If CPU is the bottleneck, this
        figure limits the speed of a burst."""
        return sum(self.spent.cpu_s.values()) * 1000 / len(self.bound_ms)


@dataclass(slots=True)
class Bench:
    """A variant with a running cluster. Between the calls, the cluster has no Pods."""

    running: Running
    session: aiohttp.ClientSession
    pods: Pods
    meters: Meters
    _log: TextIO
    """The unread part of slurmctld's log."""
    _numbers: Iterator[int]

    @classmethod
    @asynccontextmanager
    async def of(cls, running: Running) -> AsyncIterator["Bench"]:
        cluster = running.cluster
        with (cluster.logs / "slurmctld.log").open() as log:
            async with api_session(cluster) as session, Pods.of(session) as pods:
                meters = Meters(cluster, session, running.variant.has_jobs)
                yield cls(running, session, pods, meters, log, itertools.count(1))

    async def burst(self, size: int, *, per_s: float | None = None) -> Burst:
        """Places `size` Pods, either all at once or `per_s` each second. The field `spent` of the result
        covers the time until the kubelets have reported that all Pods run."""
        before = await self.meters.before()
        pods = await self.pods.create(self._wanted(size), per_s)
        created = time.perf_counter()
        await self.pods.all_bound(_BOUND_WITHIN_S)
        await self.pods.all_running(_FOLLOWS_WITHIN_S)
        await asyncio.sleep(_SETTLE_S)
        placed = await self.meters.after()
        start_bound_ms = self._start_bound_ms(pods)
        await self._check_and_clear(pods)
        await asyncio.sleep(_SETTLE_S)
        released = (await self.meters.after()).since(placed)
        begin, end = min(pod.created for pod in pods), max(pod.bound for pod in pods)
        bound_ms, spent = tuple(pod.bound_ms for pod in pods), placed.since(before)
        return Burst(end - begin, created - begin, bound_ms, spent, start_bound_ms, released)

    async def idle(self, count: int) -> list[float]:
        """Creates Pods one after the other. Returns the milliseconds from the create call to the binding
        of each Pod."""
        pods = []
        for each in self._wanted(count):
            pods += await self.pods.create([each])
            await self.pods.all_bound(_BOUND_WITHIN_S)
            await asyncio.sleep(_BETWEEN_IDLE_S)  # separates the work after a binding from the next Pod
        await self._check_and_clear(pods)
        return [pod.bound_ms for pod in pods]

    def _wanted(self, count: int) -> list[Wanted]:
        """Returns Pods with new names for each call, so that a late event of an old Pod cannot match a
        new Pod."""
        numbers = itertools.islice(self._numbers, count)
        return [(f"pod-{number}", *SIZES[number % len(SIZES)]) for number in numbers]

    def _start_bound_ms(self, pods: Sequence[Pod]) -> tuple[float, ...]:
        """Returns the times from the start of the job to the binding, for all Pods whose job start is in
        slurmctld's log. The log has all starts except those by 26.05's backfill scheduler."""
        started, clock = starts(self._log.read()), time.time() - time.perf_counter()
        seen = ((pod.bound, started.get(pod.job_id)) for pod in pods)
        return tuple((bound + clock - start) * 1000 for bound, start in seen if start)

    async def _check_and_clear(self, pods: Sequence[Pod]) -> None:
        running, variant = self.running, self.running.variant
        if lost := [pod.name for pod in pods if not pod.node]:
            raise Broken(f"{variant.placer}: {len(lost)} Pods were bound and have no Node: {lost[:5]}")
        if variant.placer is Placer.REAL:
            await asyncio.to_thread(compare_with_squeue, running.cluster, pods)
        await self.pods.clear(_FOLLOWS_WITHIN_S)
        if variant.has_jobs:
            async with aclosing(SlurmRest(running.slurmrestd_url, running.cluster.token_file)) as slurm:
                await all_ended(slurm, [pod.job_id for pod in pods if pod.job_id], _FOLLOWS_WITHIN_S)


class SlurmAlone:
    """Creates jobs like the jobs of Pods, but only through slurmrestd, without Kubernetes. If `at_once`
    is True, the jobs are created with job/allocate, otherwise with job/submit. The caller closes this
    object."""

    def __init__(self, cluster: Cluster, *, at_once: bool) -> None:
        self._cluster = cluster
        self._at_once = at_once
        self._numbers = itertools.count(_FIRST_ID)
        self._calls, self._bytes = Counter[str](), Counter[str]()
        self._slurm = SlurmRest(
            *(cluster.slurmrestd_url, cluster.token_file), concurrency=AT_A_TIME, heard=self._count
        )

    async def aclose(self) -> None:
        await self._slurm.aclose()

    async def burst(self, size: int) -> Burst:
        """Creates jobs. In the returned Burst, "bound" means running."""
        before = self._reading()
        jobs = list(itertools.islice(self._numbers, size))
        left, asked, running = set(jobs), dict[int, float](), dict[int, float]()

        async def create(job: int) -> None:
            asked[job] = time.perf_counter()
            if self._at_once:
                await self._slurm.allocate(_job(job), job)
                running[job] = time.perf_counter()
            else:
                await self._slurm.submit(_job(job), job)

        async def all_running() -> bool:
            """Returns True if all jobs run. The query includes the jobs that were allocated at once, to
            confirm that they run."""
            states = await self._slurm.states(left)
            now = time.perf_counter()
            for job in [job for job, state in states.items() if state.running]:
                running.setdefault(job, now)
                left.remove(job)
            return not left

        begin = time.perf_counter()
        await for_each(jobs, create)
        created = time.perf_counter()
        await until(all_running, f"{size} jobs run", _BOUND_WITHIN_S, _LOOK_S)
        spent = self._reading().since(before)
        await for_each(jobs, self._slurm.cancel)
        await all_ended(self._slurm, jobs, _BOUND_WITHIN_S)
        took = tuple((running[job] - asked[job]) * 1000 for job in jobs)
        return Burst(max(running.values()) - begin, created - begin, took, spent)

    def _reading(self) -> MeterReading:
        return MeterReading(cpu_by_component(self._cluster), dict(self._calls), dict(self._bytes))

    def _count(self, call: str, sent: int, received: int) -> None:
        self._calls[call] += 1
        self._bytes[call] += sent + received


def _job(number: int) -> JobSpec:
    """Returns the job that the extender would request for the Pod of this number."""
    cpus, gpus = SIZES[number % len(SIZES)]
    gres = (("gpu", gpus),) if gpus else ()
    return JobSpec(f"pod-{number}@default", cpus, cpus * 1024, gres)
