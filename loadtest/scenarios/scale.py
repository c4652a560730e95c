"""50,000 Pods that wait on 5,000 Nodes, and a stream of others being placed. All is real but for the
kubelets, with kube-apiserver restarted under it and a Node that flaps."""

import asyncio
import sys
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
from deploy.local.progress import Report
from deploy.local.spec import ClusterSpec
from loadtest.harness.budgets import budgets, judged
from loadtest.harness.command import BUILD, Broken, command
from loadtest.harness.meters import (
    REST_CALLS,
    VERB_SECONDS,
    Histogram,
    cpu_s,
    extender_metrics,
    peak_rss_mb,
    total,
)
from loadtest.harness.pods import api_session
from loadtest.report.figures import spread
from loadtest.scenarios.restart import restart, start_extender
from loadtest.scenarios.scale_pods import Asked, Backlog, Stream, asking_filter
from loadtest.scenarios.scale_probe import read_ticks

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

Json = dict[str, Any]


def bench_scale(
    *,
    nodes: Annotated[int, typer.Option(min=10, help="Nodes.")] = 5000,
    pods: Annotated[int, typer.Option(min=200, help="Pods that wait.")] = 50_000,
    restarted: Annotated[
        int, typer.Option(min=0, help="Placeholders of a restart, as `bench-restart`; 0: none.")
    ] = 10_000,
    figures: Annotated[Path, typer.Option(help="Where they go.")] = BUILD / "scale.json",
) -> None:
    with command(figures) as run:
        ticks = run.directory / "ticks.jsonl"
        with Cluster.up(_spec(nodes, ticks), run.directory / "cluster") as cluster:
            run.report(f"{nodes} Nodes are up")
            found = asyncio.run(Subject(cluster, ticks, run.report).measured(pods))
        again = restart(restarted, run.directory / "restart", run.report) if restarted else None
        verdicts = judged(budgets("bench-scale"), found)
        verdicts += judged(budgets("bench-restart"), again) if again else []
        size = {"nodes": nodes, "pods": pods, f"rss_mb_{nodes}x{pods}": found["rss_mb"]}
        run.conclude({**size, **found, "restart": again}, verdicts)


def _spec(nodes: int, ticks: Path) -> ClusterSpec:
    """One node has a partition of its own, which the first Pods of the backlog fill. Slurm starts no job
    at once on nodes that others, of whatever partition, wait for: the stream has the other nodes."""
    return ClusterSpec(
        nodes=1,
        external_nodes=nodes - 1,
        cpus_per_node=_CPUS,
        memory_mb=1100 * _CPUS,
        gpus_per_node=0,
        extender_settings=(("LEASE_DURATION_S", str(_LEASE_S)),),
        extender_argv=(sys.executable, "-m", "loadtest.scenarios.scale_probe", str(ticks)),
    )


@dataclass(frozen=True, slots=True)
class Subject:
    """The cluster, and the file in which its extender's event loop is told of."""

    cluster: Cluster
    ticks: Path
    report: Report

    async def measured(self, pods: int) -> Json:
        """`start` is of an extender that finds all Pods there; `relist_s` is from kube-apiserver serving
        again to the first new Pod's gate lifted, `rss_mb` the most memory that the extender had at any
        time. The phases are `steady`, and `relist` while kube-apiserver comes back."""
        async with api_session(self.cluster) as session:
            backlog, stream = Backlog(session), Stream(session, _PACE)
            await backlog.create_first()
            self.cluster.kill("extender")
            await backlog.create_others(pods)
            self.report(f"{pods} Pods wait")
            ready_s = round(await start_extender(self.cluster), 2)
            start = {
                "ready_s": ready_s,
                "cpu_s": round(self._cpu_s, 2),
                "rss_mb": peak_rss_mb(self.cluster),
            }
            self.report(f"the extender has read them: {start}")
            await asyncio.sleep(_SETTLES_S)
            steady, relist = Json(), Json()
            async with stream.flowing(), asking_filter(self.cluster, 2 * _PACE) as asked:
                async with self._phase(steady, stream, asked):
                    await asyncio.sleep(_STEADY_S)
                self.report(f"steady: {steady}")
                async with self._phase(relist, stream, asked):
                    relist_s = await self._list_again(stream)
                    await asyncio.sleep(_RELIST_S)
            self.report(f"while it lists again ({relist_s:.1f} s): {relist}")
            flaps = await self._flaps(session)
            self.report(f"a Node flaps: {flaps}")
        phases = {"steady": steady, "relist": relist}
        found = {"start": start, "phases": phases, "relist_s": relist_s, "flaps": flaps}
        return found | {"rss_mb": peak_rss_mb(self.cluster)}

    @property
    def _cpu_s(self) -> float:
        return cpu_s(self.cluster.pid("extender"))

    @asynccontextmanager
    async def _phase(self, found: Json, stream: Stream, asked: Sequence[Asked]) -> AsyncIterator[None]:
        """A stretch of the run, of which `found` tells when it is over; `asked` grows meanwhile. How
        late the event loop came to a timer is `late_ms`, whatever held it up, and `held_ms` what of that
        it worked; `event_lag_ms` is from a Pod's create call to its gate seen lifted; /filter is timed
        by the extender's own histogram, and from the call to the answer, with all that it waits for."""
        before, spent, began = await self._answered(), self._cpu_s, time.monotonic()
        yield
        ended, used, after = time.monotonic(), self._cpu_s - spent, await self._answered()
        await stream.settled(ended, _LIFTED_WITHIN_S)
        answered = after.since(before)
        p99 = answered.percentile_ms(99)
        late, held = read_ticks(self.ticks, began, ended)
        if not late:
            raise Broken("the extender has not told of its event loop")
        found |= {
            "seconds": round(ended - began, 1),
            "late_ms": spread(late),
            "held_ms": spread(held),
            "event_lag_ms": spread(stream.lags_ms(began, ended)),
            "filter_calls": answered.count,
            "filter_ms_p99": None if p99 is None else round(p99, 2),
            "filter_caller_ms": spread([ms for at, ms in asked if began <= at <= ended]),
            "extender_cpu_percent": round(used / (ended - began) * 100, 1),
            "rss_mb": peak_rss_mb(self.cluster),
        }

    async def _answered(self) -> Histogram:
        page = await extender_metrics(self.cluster)
        return Histogram.of(page, VERB_SECONDS, verb="filter", status="200")

    async def _list_again(self, stream: Stream) -> float:
        """A kube-apiserver that was restarted has lost what it would have told: every watch expires.
        Returns how long after its return the first Pod is placed."""
        before = self._lists_again()
        self.cluster.kill("kube-apiserver")
        await asyncio.to_thread(self.cluster.start, "kube-apiserver")
        serves = time.monotonic()
        placed = await stream.first_since(serves, _LIFTED_WITHIN_S)
        if self._lists_again() == before:
            raise Broken("no watch has expired: nothing was listed again")
        return round(placed - serves, 1)

    def _lists_again(self) -> int:
        """How often a watch of the extender has expired so far."""
        return (self.cluster.logs / "extender.log").read_text(errors="replace").count(_LISTED_AGAIN)

    async def _flaps(self, session: aiohttp.ClientSession) -> Mapping[str, Json]:
        """What one Node costs that becomes not ready, or is cordoned, and comes back; less what the same
        time costs without, before and after, and less our own writes on the Node."""
        before, found = await self._spent(session, "", ()), {}
        cordoned = [{"spec": {"unschedulable": value}} for value in (True, None)]
        for name, path, patches in (
            ("not ready", "/status", [_ready("False"), _ready("True")]),
            ("cordoned", "", cordoned),
        ):
            flapping, after = (
                await self._spent(session, path, patches),
                await self._spent(session, "", ()),
            )
            cpu, calls, writes = (
                (spent - mean(quiet)) / _FLAPS
                for spent, *quiet in zip(flapping, before, after, strict=True)
            )
            before = after
            costs = {"extender_cpu_ms": round(cpu * 1000, 1), "rest_calls": round(calls, 2)}
            found[name] = {"flaps": _FLAPS, **costs, "api_writes": round(writes - len(patches), 2)}
        return found

    async def _spent(
        self, session: aiohttp.ClientSession, path: str, patches: Sequence[Json]
    ) -> tuple[float, float, float]:
        """CPU seconds, calls of slurmrestd about nodes and writes on Nodes, during as many flaps, or
        during the same time without any."""
        before, spent = await self._counted(session), self._cpu_s
        for _ in range(_FLAPS):
            for patch in patches or (None, None):
                if patch is not None:
                    node = f"/api/v1/nodes/external-1{path}"
                    async with session.patch(node, json=patch, headers=_MERGE) as answer:
                        answer.raise_for_status()
                await asyncio.sleep(_AWAY_S)
        cpu, after = self._cpu_s - spent, await self._counted(session)
        return cpu, after[0] - before[0], after[1] - before[1]

    async def _counted(self, session: aiohttp.ClientSession) -> tuple[float, float]:
        """Calls of slurmrestd about nodes, and patches of Nodes, so far."""
        calls = await extender_metrics(self.cluster)
        async with session.get("/metrics") as answer:
            writes = await answer.text()
        about_nodes = ("GET nodes", "GET node", "POST node")
        return (
            sum(total(calls, REST_CALLS, call=call) for call in about_nodes),
            total(writes, "apiserver_request_total", verb="PATCH", resource="nodes"),
        )


def _ready(status: str) -> Json:
    return {"status": {"conditions": [{"type": "Ready", "status": status, "reason": "Flapping"}]}}
