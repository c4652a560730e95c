"""Carries the scenarios out: a stage's clusters come up together, and one after the other has its turn.

A scenario that breaks is over, and says why; the others go on.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Final

import aiohttp

from deploy.local.cluster import Cluster
from deploy.local.demo.errors import NotObserved
from deploy.local.errors import ClusterError
from deploy.local.progress import Report
from loadtest import arms
from loadtest.arms import Arm
from loadtest.bench import native
from loadtest.bench.ceiling import Ceiling
from loadtest.bench.results import Outcome
from loadtest.bench.scenarios import Flow, Path, Scenario, Who
from loadtest.crowd import Broken, first
from loadtest.figures import Burst
from loadtest.measurement import Bench
from loadtest.noop_binary import noop_binary
from loadtest.slurmrestd_stub.process import stub
from slurm_client.errors import SlurmError

_WARM_UP: Final = 50
_BOUND_WITHIN_S: Final = 300.0
_WENT_WRONG: Final = (
    Broken,
    ClusterError,
    NotObserved,
    SlurmError,
    OSError,
    aiohttp.ClientError,
    ExceptionGroup,
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many Pods are in a burst, and in all steady loads together; how fast the latter come."""

    pods: int
    steady_pods_per_s: float


def run_stage(scenarios: Sequence[Scenario], sizes: Sizes, report: Report) -> list[Outcome]:
    """The outcome of each, in their order. The logs are kept where something breaks. Raises
    MissingPrerequisitesError."""
    outcomes = [Outcome(scenario) for scenario in scenarios]
    directory = FilePath(tempfile.mkdtemp(prefix="bench-"))
    with ExitStack() as stack:
        working = []
        for number, outcome in enumerate(outcomes):
            with _breaking(outcome, report):
                working.append(
                    stack.enter_context(_worker(outcome, directory / str(number), sizes, report))
                )
                report(f"  {outcome.scenario.name}: the cluster is up")
        asyncio.run(_in_turn(working))
    if any(outcome.broken for outcome in outcomes):
        report(f"the logs are in {directory}")
    else:
        shutil.rmtree(directory)
    return outcomes


@contextmanager
def _breaking(outcome: Outcome, report: Report) -> Iterator[None]:
    """What goes wrong in the block is the outcome's."""
    try:
        yield
    except _WENT_WRONG as error:
        cause = first(error)
        outcome.broken = str(cause) or type(cause).__name__
        report(f"  {outcome.scenario.name}: BROKEN: {outcome.broken}")


@dataclass(frozen=True, slots=True)
class _Worker:
    """A scenario whose cluster is up."""

    outcome: Outcome
    arm: Arm
    cluster: Cluster
    sizes: Sizes
    report: Report

    async def work(self, turn: asyncio.Lock) -> None:
        with _breaking(self.outcome, self.report):
            await (self._pods(turn) if self.arm.spec.kubernetes else self._jobs(turn))
        if self.outcome.broken:
            await asyncio.to_thread(self.cluster.down)  # what is left of it is not the others' to bear

    async def _pods(self, turn: asyncio.Lock) -> None:
        """Waiters get a lock in the order in which they came: so they take turns."""
        scenario, outcome = self.outcome.scenario, self.outcome
        await self._prepare(turn)
        async with Bench.of(self.arm, self.cluster) as bench:
            async with turn:
                await bench.burst(_WARM_UP, within_s=_BOUND_WITHIN_S)
                outcome.idle_ms += await bench.idle(scenario.idle) if scenario.idle else []
            for _ in range(scenario.bursts):
                async with turn:
                    burst = await bench.burst(self.sizes.pods, within_s=_BOUND_WITHIN_S)
                outcome.bursts.append(burst)
                self._tell("Pods at once", burst)
            rate = self.sizes.steady_pods_per_s
            for _ in range(scenario.steadies):
                size = -(-self.sizes.pods // scenario.steadies)
                async with turn:
                    steady = await bench.burst(size, per_s=rate, within_s=_BOUND_WITHIN_S)
                outcome.steadies.append(steady)
                self._tell("Pods at a steady rate", steady)
            if self.arm.spec.extender:
                outcome.peak_rss_mb = bench.meters.peak_rss_mb()

    async def _prepare(self, turn: asyncio.Lock) -> None:
        scenario = self.outcome.scenario
        async with turn:
            if scenario.flow is Flow.FILTER_FIRST:
                await asyncio.to_thread(
                    self.cluster.kubectl, "delete", "mutatingwebhookconfiguration", "slurm-extender"
                )
            if scenario.native:
                await native.submit(self.cluster, native.elsewhere(scenario.native))
            if scenario.before:
                await native.submit(self.cluster, native.before(scenario.before))

    async def _jobs(self, turn: asyncio.Lock) -> None:
        scenario = self.outcome.scenario
        async with aclosing(Ceiling(self.cluster, scenario.path)) as ceiling:
            async with turn:
                await ceiling.burst(_WARM_UP)
            for _ in range(scenario.bursts):
                async with turn:
                    burst = await ceiling.burst(self.sizes.pods)
                self.outcome.bursts.append(burst)
                self._tell("jobs at once", burst)

    def _tell(self, what: str, burst: Burst) -> None:
        name, count = self.outcome.scenario.name, len(burst.bound_ms)
        self.report(f"  {name}: {count} {what}, {burst.pods_per_s:.0f}/s")


@contextmanager
def _worker(outcome: Outcome, directory: FilePath, sizes: Sizes, report: Report) -> Iterator[_Worker]:
    with ExitStack() as stack:
        arm = arm_of(outcome.scenario, stack, report)
        cluster = stack.enter_context(Cluster.up(arm.spec, directory))
        yield _Worker(outcome, arm, cluster, sizes, report)


def arm_of(scenario: Scenario, stack: ExitStack, report: Report) -> Arm:
    """Who places the Pods, and on what; a stub that it needs runs until the stack unwinds."""
    arm = _who(scenario, stack, report)
    if scenario.path is Path.SUBMIT and arm.has_jobs:
        arm = arm.with_settings(("FAST_PATH", "false"))
    if scenario.native is not None:
        arm = arm.with_slurm_conf(*native.SLURM_CONF)
    return arm.with_scheduler_parameters(*scenario.scheduler).scoring(scenario.percent_scored)


def _who(scenario: Scenario, stack: ExitStack, report: Report) -> Arm:
    match scenario.who:
        case Who.ALONE:
            return arms.alone(scenario.nodes)
        case Who.REST:
            return arms.slurm_alone(scenario.nodes)
        case Who.NOOP:
            return arms.noop(scenario.nodes, noop_binary(report))
        case Who.STUB:
            return arms.stubbed(scenario.nodes, stack.enter_context(_stub(scenario.nodes)))
        case Who.REAL:
            return arms.ours(scenario.nodes, scenario.release)


def _stub(nodes: int) -> AbstractContextManager[str]:
    """With nodes like the arms'."""
    sizes = (f"--nodes={nodes}", f"--cpus={arms.CPUS_PER_NODE}", f"--gpus={arms.GPUS_PER_NODE}")
    return stub(*sizes, f"--memory-mb={arms.MEMORY_MB}")


async def _in_turn(workers: Sequence[_Worker]) -> None:
    turn = asyncio.Lock()
    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(worker.work(turn))
