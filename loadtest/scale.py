"""`python -m loadtest.scale`: 50,000 Pods that wait on 5,000 Nodes, and a stream of others being placed.

All is real but for the kubelets, with kube-apiserver restarted under it and a Node that flaps. Exit
status 1: the run is broken, or over a budget (`scale_figures`).
"""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, Final

import aiohttp
import typer

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError, MissingPrerequisitesError
from deploy.local.layout import CHECKOUT
from deploy.local.progress import Report, Stopwatch
from deploy.local.spec import ClusterSpec
from loadtest.bench_restart import restart, until_ready
from loadtest.crowd import Broken, api_session, first
from loadtest.meters import cpu_s, extenders_page, peak_rss_mb
from loadtest.scale_crowd import Asked, Backlog, Stream, asking_filter
from loadtest.scale_figures import Flap, Phase, Scale, Spread, Start
from loadtest.scale_probe import read_ticks
from loadtest.scrape import VERB_SECONDS, Histogram, total

_CPUS: Final = 100
_PACE: Final = 5.0
"""Streamed Pods a second; /filter is asked twice as often."""
_STEADY_S: Final = 45.0
_RELIST_S: Final = 45.0
_SETTLES_S: Final = 20.0
_LIFTED_WITHIN_S: Final = 120.0
_FLAPS: Final = 8
_AWAY_S: Final = 1.5
_LEASE_S: Final = 60
"""Longer than kube-apiserver is away: what is to be seen is the list, not another leader."""
_LISTED_AGAIN: Final = "watch expired, listing again"
_MERGE: Final = {"Content-Type": "application/strategic-merge-patch+json"}

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def scale(
    *,
    nodes: Annotated[int, typer.Option(min=10, help="Nodes.")] = 5000,
    pods: Annotated[int, typer.Option(min=200, help="Pods that wait.")] = 50_000,
    restarted: Annotated[
        int, typer.Option(min=0, help="Placeholders of a restart, as `bench-restart`; 0: none.")
    ] = 10_000,
    figures: Annotated[Path, typer.Option(help="Where they go.")] = CHECKOUT / "build/scale.json",
) -> None:
    stopwatch = Stopwatch(typer.echo)
    figures.unlink(missing_ok=True)  # a broken run leaves none
    try:
        found = _run(nodes, pods, restarted, stopwatch)
    except MissingPrerequisitesError as error:
        for line in error.missing:
            typer.echo(f"missing: {line}")
        raise typer.Exit(2) from None
    except (Broken, ClusterError, OSError, aiohttp.ClientError, ExceptionGroup) as error:
        typer.echo(f"broken: {first(error)}")
        raise typer.Exit(1) from None
    found.write(figures)
    for verdict in found.verdicts():
        stopwatch(f"{verdict.word}: {verdict.words}")
    typer.echo(f"the figures are in {figures}")
    raise typer.Exit(0 if found.passes else 1)


def _run(nodes: int, pods: int, restarted: int, report: Report) -> Scale:
    directory = Path(tempfile.mkdtemp(prefix="scale-"))
    ticks = directory / "ticks.jsonl"
    try:
        with Cluster.up(_spec(nodes, ticks), directory / "cluster") as cluster:
            report(f"{nodes} Nodes are up")
            found = asyncio.run(_measure(Subject(cluster, ticks, report), pods))
        again = restart(restarted, report) if restarted else None
    except BaseException:
        report(f"the logs are in {directory}")
        raise
    shutil.rmtree(directory)
    return Scale(nodes, pods, restart=again, **found)


def _spec(nodes: int, ticks: Path) -> ClusterSpec:
    """One node has a partition of its own, which the first Pods of the backlog fill. Slurm starts no job
    at once on nodes that others, of whatever partition, wait for: the stream has the other nodes to
    itself."""
    return ClusterSpec(
        nodes=1,
        external_nodes=nodes - 1,
        cpus_per_node=_CPUS,
        memory_mb=1100 * _CPUS,
        gpus_per_node=0,
        extender_settings=(("LEASE_DURATION_S", str(_LEASE_S)),),
        extender_argv=(sys.executable, "-m", "loadtest.scale_probe", str(ticks)),
    )


@dataclass(frozen=True, slots=True)
class Subject:
    """The cluster, and what its extender writes of its event loop."""

    cluster: Cluster
    ticks: Path
    report: Report

    @property
    def cpu_s(self) -> float:
        return cpu_s(self.cluster.pid("extender"))

    @property
    def peak_mb(self) -> float:
        """The most memory that the process had so far (RSS)."""
        return round(peak_rss_mb(self.cluster.pid("extender")), 1)

    @property
    def lists_again(self) -> int:
        """How often a watch of the extender has expired so far."""
        return (self.cluster.logs / "extender.log").read_text(errors="replace").count(_LISTED_AGAIN)

    async def metrics(self) -> str:
        """The extender's page."""
        return await extenders_page(self.cluster)


async def _measure(subject: Subject, pods: int) -> dict[str, Any]:
    cluster, report = subject.cluster, subject.report
    async with api_session(cluster) as session:
        backlog, stream = Backlog(session), Stream(session, _PACE)
        await backlog.create_first()
        cluster.kill("extender")
        await backlog.create_others(pods)
        report(f"{pods} Pods wait")
        start = await _start(subject)
        report(f"the extender has read them: {start.ready_s:.1f} s, {start.rss_mb:.0f} MB")
        await asyncio.sleep(_SETTLES_S)
        phases = {}
        async with stream.flowing(), asking_filter(cluster, 2 * _PACE) as asked:
            async with _phase(subject, stream, asked) as steady:
                await asyncio.sleep(_STEADY_S)
            phases["steady"] = steady.found
            report(f"steady: {steady.found}")
            async with _phase(subject, stream, asked) as relist:
                relist_s = await _list_again(subject, stream)
                await asyncio.sleep(_RELIST_S)
            phases["relist"] = relist.found
            report(f"while it lists again ({relist_s:.1f} s): {relist.found}")
        flaps = await _flaps(subject, session)
        report(f"a Node flaps: {flaps}")
        told = await backlog.told()
    found = {"start": start, "phases": phases, "relist_s": relist_s, "flaps": flaps, "told": told}
    return found | {"rss_mb": subject.peak_mb}


async def _start(subject: Subject) -> Start:
    began = time.monotonic()
    subject.cluster.start("extender", wait=False)
    ready_s = await until_ready(subject.cluster, began)
    return Start(round(ready_s, 2), round(subject.cpu_s, 2), subject.peak_mb)


class _Measured:
    """A phase; `found` is there when it is over."""

    found: Phase


@asynccontextmanager
async def _phase(subject: Subject, stream: Stream, asked: Sequence[Asked]) -> AsyncIterator[_Measured]:
    """`asked` grows meanwhile."""
    measured = _Measured()
    before, spent, began = await subject.metrics(), subject.cpu_s, time.monotonic()
    yield measured
    ended, used, after = time.monotonic(), subject.cpu_s - spent, await subject.metrics()
    await stream.settled(ended, _LIFTED_WITHIN_S)
    earlier, later = (
        Histogram.of(page, VERB_SECONDS, verb="filter", status="200") for page in (before, after)
    )
    answered = later.since(earlier)
    p99 = answered.percentile_ms(99)
    ticks = read_ticks(subject.ticks, began, ended)
    if not ticks:
        raise Broken("the extender has not told of its event loop")
    measured.found = Phase(
        seconds=round(ended - began, 1),
        late_ms=Spread.of([ms for each in ticks for ms in each.late]),
        held_ms=Spread.of([ms for each in ticks for ms in each.held]),
        event_lag_ms=Spread.of(stream.lags_ms(began, ended)),
        filter_calls=answered.count,
        filter_ms_p99=None if p99 is None else round(p99, 2),
        filter_caller_ms=Spread.of([each.ms for each in asked if began <= each.at <= ended]),
        extender_cpu_percent=round(used / (ended - began) * 100, 1),
        rss_mb=subject.peak_mb,
    )


async def _list_again(subject: Subject, stream: Stream) -> float:
    """A kube-apiserver that was restarted has lost what it would have told: every watch expires. Returns
    how long after its return the first Pod is placed."""
    before = subject.lists_again
    subject.cluster.kill("kube-apiserver")
    await asyncio.to_thread(subject.cluster.start, "kube-apiserver")
    serves = time.monotonic()
    placed = await stream.first_since(serves, _LIFTED_WITHIN_S)
    if subject.lists_again == before:
        raise Broken("no watch has expired: nothing was listed again")
    return round(placed - serves, 1)


async def _flaps(subject: Subject, session: aiohttp.ClientSession) -> Mapping[str, Flap]:
    """A Node becomes not ready, or is cordoned, and comes back. What the same time costs without is
    measured before and after each."""
    before = await _spent(subject, session, None)
    ways: Mapping[str, tuple[str, Any, Any]] = {
        "not ready": ("/status", _ready("False"), _ready("True")),
        "cordoned": ("", {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}),
    }
    found = {}
    for name, way in ways.items():
        flapping, after = await _spent(subject, session, way), await _spent(subject, session, None)
        cpu_s, calls, writes = (
            spent - mean(quiet) for spent, *quiet in zip(flapping, before, after, strict=True)
        )
        before = after
        own = 2 * _FLAPS
        found[name] = Flap(
            _FLAPS,
            round(cpu_s / _FLAPS * 1000, 1),
            round(calls / _FLAPS, 2),
            round((writes - own) / _FLAPS, 2),
        )
    return found


async def _spent(
    subject: Subject, session: aiohttp.ClientSession, way: tuple[str, Any, Any] | None
) -> tuple[float, float, float]:
    """CPU seconds, calls of slurmrestd about nodes and writes on Nodes, during as many flaps; without a
    way, during the same time without any."""
    before, spent = await _counted(subject, session), subject.cpu_s
    path, away, back = way or ("", None, None)
    for _ in range(_FLAPS):
        for patch in (away, back):
            if patch is not None:
                node = f"/api/v1/nodes/external-1{path}"
                async with session.patch(node, json=patch, headers=_MERGE) as answer:
                    answer.raise_for_status()
            await asyncio.sleep(_AWAY_S)
    cpu, after = subject.cpu_s - spent, await _counted(subject, session)
    return cpu, after[0] - before[0], after[1] - before[1]


async def _counted(subject: Subject, session: aiohttp.ClientSession) -> tuple[float, float]:
    """Calls of slurmrestd about nodes, and patches of Nodes, so far."""
    calls = await subject.metrics()
    async with session.get("/metrics") as answer:
        writes = await answer.text()
    name = "slurm_extender_slurmrestd_calls_total"
    about_nodes = sum(total(calls, name, call=call) for call in ("GET nodes", "GET node", "POST node"))
    return about_nodes, total(writes, "apiserver_request_total", verb="PATCH", resource="nodes")


def _ready(status: str) -> Mapping[str, Any]:
    return {"status": {"conditions": [{"type": "Ready", "status": status, "reason": "Flapping"}]}}


if __name__ == "__main__":
    app()
