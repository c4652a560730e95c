"""`python -m loadtest.bench_restart`: how soon an extender that was killed acts again, with 10,000
placeholders to find. Some five minutes, most of which the Pods take to be placed. Exit status 1: the run
is broken, or it takes longer than it may."""

import asyncio
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.progress import Report, Stopwatch
from deploy.local.spec import ClusterSpec
from loadtest.crowd import Crowd, Wanted
from loadtest.meters import cpu_s, peak_rss_mb

BUDGET_S: Final = 10.0
_PODS_A_NODE: Final = 100  # a Node takes 110
_BATCH: Final = 1000
_BATCH_WITHIN_S: Final = 300.0
_LONGEST_S: Final = 120.0
_LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Restart:
    """Seconds from the start of the process."""

    pods: int
    ready_s: float
    """Until /readyz says that both systems have been read."""
    placed_s: float
    """Until a Pod that is created then is bound."""
    cpu_s: float
    """What the process has used by then."""
    rss_mb: float
    """The most that it had."""


app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def bench_restart(
    *,
    pods: Annotated[int, typer.Option(min=1, help="Pods that run, each with its placeholder.")] = 10_000,
    figures: Annotated[Path, typer.Option(help="Where they go.")] = CHECKOUT
    / "build/bench-restart.json",
) -> None:
    found = restart(pods, Stopwatch(typer.echo))
    figures.parent.mkdir(exist_ok=True)
    figures.write_text(json.dumps(asdict(found), indent=1) + "\n")
    typer.echo(json.dumps(asdict(found), indent=1))
    if found.ready_s > BUDGET_S:
        typer.echo(
            f"too slow: {found.ready_s:.1f} s until it is ready, where {BUDGET_S:g} s are allowed"
        )
        raise typer.Exit(1)


def restart(pods: int, report: Report) -> Restart:
    """On a cluster of its own, which is gone afterwards. Raises Broken, ClusterError."""
    spec = ClusterSpec(
        nodes=0,
        external_nodes=-(-pods // _PODS_A_NODE) + 1,
        cpus_per_node=_PODS_A_NODE,
        memory_mb=1100 * _PODS_A_NODE,
        gpus_per_node=0,
        slurm_conf=(f"MaxJobCount={2 * pods + 1000}",),
    )
    with (
        tempfile.TemporaryDirectory(prefix="bench-restart-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        return asyncio.run(_measure(cluster, pods, report))


async def _measure(cluster: Cluster, pods: int, report: Report) -> Restart:
    async with Crowd.of(cluster) as crowd:
        for first in range(0, pods, _BATCH):
            names = range(first, min(first + _BATCH, pods))
            await crowd.create(Wanted(f"pod-{number}", 1, 0) for number in names)
            await crowd.all_bound(_BATCH_WITHIN_S)
            report(f"{names.stop} Pods run")
        cluster.kill("extender")
        began = time.monotonic()
        cluster.start("extender", wait=False)
        ready_s = await until_ready(cluster, began)
        report(f"ready {ready_s:.2f} s after its start")
        await crowd.create([Wanted("after", 1, 0)])
        await crowd.all_bound(_LONGEST_S)
        placed_s = time.monotonic() - began
    pid = cluster.pid("extender")
    return Restart(
        pods=pods,
        ready_s=round(ready_s, 2),
        placed_s=round(placed_s, 2),
        cpu_s=round(cpu_s(pid), 2),
        rss_mb=round(peak_rss_mb(pid), 1),
    )


async def until_ready(cluster: Cluster, began: float) -> float:
    """How long after `began`, by `time.monotonic`, the extender says that both systems have been read.
    Raises TimeoutError."""
    url = f"http://127.0.0.1:{cluster.ports['extender-health']}/readyz"
    async with httpx.AsyncClient(timeout=5) as client, asyncio.timeout(_LONGEST_S):
        while True:
            try:
                if (await client.get(url)).status_code == 200:
                    return time.monotonic() - began
            except httpx.HTTPError:
                pass  # it does not listen yet
            await asyncio.sleep(_LOOK_S)


if __name__ == "__main__":
    app()
