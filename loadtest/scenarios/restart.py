"""How soon an extender that was killed acts again, with 10,000 placeholders to find. Some five minutes,
most of which the Pods take to be placed."""

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from deploy.local.cluster import Cluster
from deploy.local.progress import Report
from loadtest.harness.budgets import budgets, judged
from loadtest.harness.command import BUILD, command
from loadtest.harness.meters import cpu_s, peak_rss_mb
from loadtest.harness.pods import Pods
from loadtest.harness.variants import NodeSize, Placer, Variant

_SIZE: Final = NodeSize(cpus=100, memory_mb=110_000, gpus=0)  # a Node takes 110 Pods
_BATCH: Final = 1000
_BATCH_WITHIN_S: Final = 300.0
_LONGEST_S: Final = 120.0


def bench_restart(
    *,
    pods: Annotated[int, typer.Option(min=1, help="Pods that run, each with its placeholder.")] = 10_000,
    figures: Annotated[Path, typer.Option(help="Where they go.")] = BUILD / "bench-restart.json",
) -> None:
    with command(figures) as run:
        found = restart(pods, run.directory, run.report)
        run.report(f"{found}")
        run.conclude(found, judged(budgets("bench-restart"), found))


def restart(pods: int, directory: Path, report: Report) -> dict[str, Any]:
    """On a cluster of its own. Seconds are from the start of the process: `ready_s` until /readyz says
    that both systems have been read, `placed_s` until a Pod that is created then is bound; `cpu_s` is
    what the process has used by then, `rss_mb` the most that it had. Raises Broken, ClusterError."""
    variant = Variant(
        *(Placer.REAL, -(-pods // _SIZE.cpus) + 1),
        size=_SIZE,
        slurm_conf=(f"MaxJobCount={2 * pods + 1000}",),
    )
    with variant.up(directory) as running:
        cluster = running.cluster
        ready_s, placed_s = asyncio.run(_measure(cluster, pods, report))
        used_s = round(cpu_s(cluster.pid("extender")), 2)
        times = {"ready_s": round(ready_s, 2), "placed_s": round(placed_s, 2), "cpu_s": used_s}
        return {"pods": pods, **times, "rss_mb": peak_rss_mb(cluster)}


async def _measure(cluster: Cluster, count: int, report: Report) -> tuple[float, float]:
    async with Pods.of(cluster) as pods:
        for first in range(0, count, _BATCH):
            numbers = range(first, min(first + _BATCH, count))
            await pods.create((f"pod-{number}", 1, 0) for number in numbers)
            await pods.all_bound(_BATCH_WITHIN_S)
            report(f"{numbers.stop} Pods run")
        cluster.kill("extender")
        began = time.monotonic()
        ready_s = await start_extender(cluster)
        report(f"ready {ready_s:.2f} s after its start")
        await pods.create([("after", 1, 0)])
        await pods.all_bound(_LONGEST_S)
        return ready_s, time.monotonic() - began


async def start_extender(cluster: Cluster) -> float:
    """Starts the extender that was killed; returns how long it takes until it says that both systems
    have been read. Raises ClusterError."""
    began = time.monotonic()
    await asyncio.to_thread(cluster.start, "extender")
    return time.monotonic() - began
