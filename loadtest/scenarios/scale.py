"""Measures an extender with very many Pods: 50,000 waiting Pods, and a start with 10,000 placeholder
jobs."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Annotated, Final, TypeVar

import typer

from deploy.local.cluster import Cluster
from deploy.local.progress import Report
from deploy.local.spec import ClusterSpec
from loadtest.harness.budgets import budgets, judged
from loadtest.harness.command import BUILD, Broken, command
from loadtest.harness.concurrently import at_pace, beside
from loadtest.harness.meters import Meters, cpu_s, peak_rss_mb
from loadtest.harness.pods import Pods, api_session
from loadtest.harness.variants import Placer, Variant
from loadtest.report.figures import Json, rounded, spread
from loadtest.scenarios.scale_pods import Asked, Stream, asking_filter, create_first, create_others
from loadtest.scenarios.scale_probe import read_ticks

_SIZE: Final = ClusterSpec(cpus_per_node=100, memory_mb=110_000, gpus_per_node=0)
"""Size of the Nodes. A Node takes 110 Pods."""
_PACE: Final = 5.0
"""Number of Pods per second in the stream. /filter is called twice as often."""
_PHASE_S: Final = 45.0
_SETTLES_S: Final = 20.0
_FLAPS: Final = 8
_AWAY_S: Final = 1.5
_LEASE_S: Final = 60
"""Duration of the extender's Lease. The Lease outlasts kube-apiserver's restart, so that the leader
stays. The measurement is about the new list of Pods, not about another leader."""
_LISTED_AGAIN: Final = "watch expired, listing again"
_MERGE: Final = {"Content-Type": "application/strategic-merge-patch+json"}
_READY: Final = {"type": "Ready", "reason": "Flapping"}
_ABOUT_NODES: Final = ("GET nodes", "GET node", "POST node")

_BATCH: Final = 1000
_BATCH_WITHIN_S: Final = 300.0
_PLACED_WITHIN_S: Final = 120.0

_Came = TypeVar("_Came")


def bench_scale(
    *,
    nodes: Annotated[int, typer.Option(min=10, help="Nodes.")] = 5000,
    pods: Annotated[int, typer.Option(min=200, help="Pods that wait.")] = 50_000,
    restarted: Annotated[int, typer.Option(min=0, help="Pods of `bench-restart`. 0: none.")] = 10_000,
    figures: Annotated[Path, typer.Option(help="File for the figures.")] = BUILD / "scale.json",
) -> None:
    """Measure 50,000 waiting Pods on 5,000 Nodes, while a stream of other Pods is placed. All
    components except the kubelets are real. kube-apiserver restarts during the run, and a Node
    flaps."""
    with command(figures) as run:
        ticks = run.directory / "ticks.jsonl"
        with Cluster.up(_spec(nodes, ticks), run.directory / "cluster") as cluster:
            run.report(f"{nodes} Nodes are up")
            found = asyncio.run(_measured(cluster, ticks, pods, run.report))
        verdicts, again = judged(budgets("bench-scale"), found), None
        if restarted:
            again = asyncio.run(restart(restarted, run.directory / "restart", run.report))
            verdicts += judged(budgets("bench-restart"), again)
        size = {"nodes": nodes, "pods": pods, f"rss_mb_{nodes}x{pods}": found["rss_mb"]}
        run.conclude({**size, **found, "restart": again}, verdicts)


def bench_restart(
    *,
    pods: Annotated[int, typer.Option(min=1, help="Pods that run, each with its placeholder.")] = 10_000,
    figures: Annotated[Path, typer.Option(help="File for the figures.")] = BUILD / "bench-restart.json",
) -> None:
    """Measure the time until a killed extender acts again, with 10,000 placeholders to find. Takes
    about five minutes, mostly for placing the Pods."""
    with command(figures) as run:
        found = asyncio.run(restart(pods, run.directory, run.report))
        run.report(f"{found}")
        run.conclude(found, judged(budgets("bench-restart"), found))


async def restart(count: int, directory: Path, report: Report) -> Json:
    """Returns the figures of a restart. `placed_s` is the time from the extender's start until a new Pod
    is bound. Raises Broken, ClusterError."""
    like = replace(_SIZE, slurm_conf=(f"MaxJobCount={2 * count + 1000}",))
    with Variant(Placer.REAL, -(-count // _SIZE.cpus_per_node) + 1, like).up(directory) as running:
        async with api_session(running.cluster) as session, Pods.of(session) as pods:
            for first in range(0, count, _BATCH):
                numbers = range(first, min(first + _BATCH, count))
                await pods.create((f"pod-{number}", 1, 0) for number in numbers)
                await pods.all_bound(_BATCH_WITHIN_S)
                report(f"{numbers.stop} Pods run")
            running.cluster.kill("extender")
            began = time.monotonic()
            ready = await _started(running.cluster)
            report(f"ready again: {ready}")
            await pods.create([("after", 1, 0)])
            await pods.all_bound(_PLACED_WITHIN_S)
            placed_s = round(time.monotonic() - began, 2)
        return {**ready, "pods": count, "placed_s": placed_s, **_used(running.cluster)}


async def _started(cluster: Cluster) -> Json:
    """Starts the extender. `ready_s` is the time until /readyz is positive. Raises ClusterError."""
    began = time.monotonic()
    await asyncio.to_thread(cluster.start, "extender")
    return {"ready_s": round(time.monotonic() - began, 2), **_used(cluster)}


def _used(cluster: Cluster) -> Json:
    return {"cpu_s": round(cpu_s(cluster.pid("extender")), 2), "rss_mb": peak_rss_mb(cluster)}


def _spec(nodes: int, ticks: Path) -> ClusterSpec:
    """Returns the spec of a cluster in which the waiting Pods have a node and a partition of their own.
    In a shared partition, the waiting jobs would block job/allocate."""
    return replace(
        _SIZE,
        nodes=1,
        external_nodes=nodes - 1,
        extender_settings=(("LEASE_DURATION_S", str(_LEASE_S)),),
        extender_argv=(sys.executable, "-m", "loadtest.scenarios.scale_probe", str(ticks)),
    )


async def _measured(cluster: Cluster, ticks: Path, pods: int, report: Report) -> Json:
    """Runs all measurements of one cluster, and returns the figures:

    * `start`: figures of the start of an extender that finds all Pods
    * `phases`: figures of two phases: `steady`, and `relist`, in which kube-apiserver restarts and the
      extender lists the Pods again
    * `relist_s`: time from kube-apiserver's return until the gate of the first new Pod is lifted
    * `flaps`: costs of a Node that flaps
    * `rss_mb`: the extender's peak memory
    """
    async with api_session(cluster) as session:
        meters = Meters(cluster, session, extender_counts=True)
        like, stream = await create_first(session), Stream(session)
        cluster.kill("extender")
        await create_others(session, like, pods)
        report(f"{pods} Pods wait")
        start = await _started(cluster)
        report(f"the extender has read them: {start}")
        await asyncio.sleep(_SETTLES_S)
        flowing = beside(stream.watch(), at_pace(_PACE, stream.create))
        async with flowing, asking_filter(cluster, 2 * _PACE) as asked:
            subject = _Subject(cluster, ticks, meters, stream, asked)
            steady, _ = await subject.phase(asyncio.sleep(_PHASE_S))
            report(f"steady: {steady}")
            relist, relist_s = await subject.phase(subject.list_again())
        report(f"while it lists again ({relist_s:.1f} s): {relist}")
        flaps = await _flaps(meters)
        report(f"a Node flaps: {flaps}")
    found = {"phases": {"steady": steady, "relist": relist}, "relist_s": relist_s, "flaps": flaps}
    return {"start": start, **found, "rss_mb": peak_rss_mb(cluster)}


@dataclass(frozen=True, slots=True)
class _Subject:
    """The measured extender. `ticks` is the file with the ticks of the extender's event loop. `asked`
    has the calls of /filter so far."""

    cluster: Cluster
    ticks: Path
    meters: Meters
    stream: Stream
    asked: Sequence[Asked]

    async def phase(self, work: Awaitable[_Came]) -> tuple[Json, _Came]:
        """Returns the figures for the duration of `work`, and the result of `work`:

        * `late_ms`: delays of timers of the event loop, for any cause
        * `held_ms`: the CPU time of the event loop itself in these delays
        * `event_lag_ms`: time from a Pod's create call until the watch shows the Pod without its gate
        * `filter_ms_p99`: time of /filter in the extender's own histogram
        * `filter_caller_ms`: time of /filter from the call to the answer, including all waiting
        """
        before, began = await self.meters.before(), time.monotonic()
        came = await work
        ended, spent = time.monotonic(), (await self.meters.after()).since(before)
        lags = await self.stream.lags_ms(began, ended, _PLACED_WITHIN_S)
        late, held = read_ticks(self.ticks, began, ended)
        if not late:
            raise Broken("the extender has reported no ticks of its event loop")
        found = {
            "seconds": round(ended - began, 1),
            "late_ms": spread(late),
            "held_ms": spread(held),
            "event_lag_ms": spread(lags),
            "filter_calls": spent.filter_s.count,
            "filter_ms_p99": rounded(spent.filter_s.percentile_ms(99)),
            "filter_caller_ms": spread([ms for at, ms in self.asked if began <= at <= ended]),
            "extender_cpu_percent": round(spent.cpu_s["extender"] / (ended - began) * 100, 1),
            "rss_mb": peak_rss_mb(self.cluster),
        }
        return found, came

    async def list_again(self) -> float:
        """Restarts kube-apiserver, so that watches expire. Returns the seconds from kube-apiserver's
        return until a new Pod is placed."""
        log = self.cluster.logs / "extender.log"
        before = log.read_text(errors="replace").count(_LISTED_AGAIN)
        self.cluster.kill("kube-apiserver")
        await asyncio.to_thread(self.cluster.start, "kube-apiserver")
        serves = time.monotonic()
        placed = await self.stream.first_since(serves, _PLACED_WITHIN_S)
        if log.read_text(errors="replace").count(_LISTED_AGAIN) == before:
            raise Broken("no watch has expired: nothing was listed again")
        await asyncio.sleep(_PHASE_S)
        return round(placed - serves, 1)


async def _flaps(meters: Meters) -> Mapping[str, Json]:
    """Returns the cost of a flap of a Node, which becomes not ready or cordoned, and then returns. The
    cost of an idle cluster in the same time is subtracted."""
    before, found = await _spent(meters), {}
    not_ready = [{"status": {"conditions": [_READY | {"status": ready}]}} for ready in ("False", "True")]
    cordoned = [{"spec": {"unschedulable": value}} for value in (True, None)]
    for name, path, patches in (("not ready", "/status", not_ready), ("cordoned", "", cordoned)):
        flapping, after = await _spent(meters, path, patches), await _spent(meters)
        cpu, calls, writes = (
            (spent - mean(quiet)) / _FLAPS for spent, *quiet in zip(flapping, before, after, strict=True)
        )
        before = after
        costs = {"extender_cpu_ms": round(cpu * 1000, 1), "rest_calls": round(calls, 2)}
        found[name] = {"flaps": _FLAPS, **costs, "api_writes": round(writes - len(patches), 2)}
    return found


async def _spent(
    meters: Meters, path: str = "", patches: Sequence[Json] = ({}, {})
) -> tuple[float, float, float]:
    """Lets a Node flap, or only waits if the patches are empty. Returns the extender's CPU seconds, the
    calls of slurmrestd about nodes, and the writes to Nodes in this time."""
    before, node = await meters.before(), f"/api/v1/nodes/external-1{path}"
    for _ in range(_FLAPS):
        for patch in patches:
            if patch:
                async with meters.api.patch(node, json=patch, headers=_MERGE) as answer:
                    answer.raise_for_status()
            await asyncio.sleep(_AWAY_S)
    spent = (await meters.after()).since(before)
    calls = sum(spent.rest_calls.get(call, 0) for call in _ABOUT_NODES)
    writes = sum(count for kind, count in spent.api_writes.items() if kind.startswith("PATCH nodes"))
    return spent.cpu_s["extender"], calls, writes
