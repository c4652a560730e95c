"""Runs the scenarios of a stage. All clusters of a stage are up at the same time, but only one scenario
at a time loads its cluster. If a scenario breaks, the scenario ends, and its outcome has the error."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final

from deploy.local.errors import MissingPrerequisitesError
from deploy.local.progress import Report
from loadtest.harness.bursts import WARM_UP, Bench, Burst, SlurmAlone
from loadtest.harness.command import WENT_WRONG, first
from loadtest.harness.concurrently import for_each
from loadtest.harness.meters import peak_rss_mb
from loadtest.harness.table import Flow, Scenario, Way
from loadtest.harness.variants import Placer, Running
from loadtest.report.figures import Outcome
from slurm_client.rest.client import SlurmRest

_FIRST_NATIVE: Final = 100
"""The id of the first native job."""


@dataclass(slots=True)
class Sizes:
    """Sizes of the load. `pods` is the number of Pods of a burst, and of all steady loads together. A
    round of bursts starts only if it would probably end within `rounds_end_s` after `begun`."""

    pods: int
    steady_pods_per_s: float
    rounds_end_s: float = inf
    begun: float = field(default_factory=time.monotonic)
    _rounds: list[float] = field(default_factory=list)

    def may_begin(self, number: int) -> bool:
        """Returns True if the round of bursts with this number may start. The numbers begin at 0. The
        scenarios of a stage share the rounds: the first scenario that asks decides for all scenarios."""
        now = time.monotonic()
        lasts = now - self._rounds[-1] if self._rounds else 0.0
        if number == len(self._rounds) and now + lasts - self.begun <= self.rounds_end_s:
            self._rounds.append(now)
        return number < len(self._rounds)


def run_stage(
    scenarios: Sequence[Scenario], sizes: Sizes, directory: Path, report: Report
) -> list[Outcome]:
    """Returns the outcome of each scenario, in order. Raises MissingPrerequisitesError."""
    outcomes = [Outcome(scenario) for scenario in scenarios]
    with ExitStack() as stack:
        workers = []
        for number, outcome in enumerate(outcomes):
            with _breaking(outcome, report):
                up = outcome.scenario.variant.up(directory / str(number))
                workers.append(_Worker(outcome, stack.enter_context(up), sizes, report))
                report(f"  {outcome.scenario.name}: the cluster is up")
        asyncio.run(_in_turn(workers))
    return outcomes


@contextmanager
def _breaking(outcome: Outcome, report: Report) -> Iterator[None]:
    """Catches errors of the block, and stores them in the outcome."""
    try:
        yield
    except MissingPrerequisitesError:
        raise
    except WENT_WRONG as error:
        outcome.broken = first(error)
        report(f"  {outcome.scenario.name}: BROKEN: {outcome.broken}")


async def _in_turn(workers: Sequence["_Worker"]) -> None:
    turn = asyncio.Lock()
    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(worker.work(turn))


@dataclass(frozen=True, slots=True)
class _Worker:
    """A scenario with a running cluster. All workers of a stage share one lock (`turn`). Workers get the
    lock in the order of their requests."""

    outcome: Outcome
    running: Running
    sizes: Sizes
    report: Report

    async def work(self, turn: asyncio.Lock) -> None:
        alone = self.running.variant.placer is Placer.REST
        with _breaking(self.outcome, self.report):
            await (self._jobs(turn) if alone else self._pods(turn))
        if self.outcome.broken:  # leftovers must not affect the other scenarios
            await asyncio.to_thread(self.running.cluster.down)

    async def _pods(self, turn: asyncio.Lock) -> None:
        scenario, outcome, sizes = self.outcome.scenario, self.outcome, self.sizes
        async with turn:
            await self._prepare()
        async with Bench.of(self.running) as bench:
            async with turn:
                await bench.burst(WARM_UP)
                outcome.idle_ms += await bench.idle(scenario.idle) if scenario.idle else []
            await self._bursts(bench, turn)
            for _ in range(scenario.steadies):
                size = -(-sizes.pods // scenario.steadies)
                async with turn:
                    steady = await bench.burst(size, per_s=sizes.steady_pods_per_s)
                outcome.steadies.append(self._reported("at a steady rate", steady))
            if scenario.placer is not Placer.ALONE:
                outcome.peak_rss_mb = peak_rss_mb(self.running.cluster)

    async def _jobs(self, turn: asyncio.Lock) -> None:
        at_once = self.outcome.scenario.path is Way.FAST
        async with aclosing(SlurmAlone(self.running.cluster, at_once=at_once)) as slurm:
            async with turn:
                await slurm.burst(WARM_UP)
            await self._bursts(slurm, turn)

    async def _bursts(self, load: Bench | SlurmAlone, turn: asyncio.Lock) -> None:
        for number in range(self.outcome.scenario.bursts):
            async with turn:
                if not self.sizes.may_begin(number):
                    self.report(f"stops after {number} rounds: this machine is busy")
                    return
                burst = await load.burst(self.sizes.pods)
            self.outcome.bursts.append(self._reported("at once", burst))

    async def _prepare(self) -> None:
        cluster, scenario = self.running.cluster, self.outcome.scenario
        if scenario.flow is Flow.FILTER_FIRST:
            webhooks = ("delete", "mutatingwebhookconfiguration", "slurm-extender")
            await asyncio.to_thread(cluster.kubectl, *webhooks)
        if scenario.native or scenario.before:
            async with aclosing(SlurmRest(cluster.slurmrestd_url, cluster.token_file)) as slurm:
                jobs = enumerate(scenario.native_jobs(), _FIRST_NATIVE)
                await for_each(jobs, lambda each: slurm.submit(each[1], each[0]))

    def _reported(self, how: str, burst: Burst) -> Burst:
        name, count = self.outcome.scenario.name, len(burst.bound_ms)
        self.report(f"  {name}: {count} {how}, {burst.pods_per_s:.0f}/s")
        return burst
