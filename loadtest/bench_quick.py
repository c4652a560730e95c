"""`python -m loadtest.bench_quick`: whether the extender has lost speed, in less than three minutes.

Three clusters are up at the same time and work in turn, so that what else the machine does in these
minutes falls on all of them. Exit status 1: the run is broken, or ours falls short of the ratio.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Final

import aiohttp
import typer
from rich.box import ROUNDED
from rich.console import Console
from rich.table import Table

from deploy.local.cluster import Cluster
from deploy.local.demo.errors import NotObserved
from deploy.local.demo.screen import make_console
from deploy.local.errors import ClusterError, MissingPrerequisitesError
from deploy.local.layout import CHECKOUT
from deploy.local.progress import Report, Stopwatch
from loadtest.arms import Arm, alone, noop, ours
from loadtest.crowd import Broken, first
from loadtest.figures import ArmFigures, Figures
from loadtest.measurement import Bench
from loadtest.noop_binary import noop_binary

_WARM_UP_PODS: Final = 50
_IDLE_PODS: Final = 30
_ROUNDS: Final = 3
# No round is begun that would probably end later: a busy machine gets fewer.
_LAST_ROUND_ENDS_S: Final = 165.0

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def bench_quick(
    *,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of each cluster.")] = 200,
    pods: Annotated[int, typer.Option(min=1, help="Pods of a burst.")] = 500,
    rounds: Annotated[int, typer.Option(min=1, help="Bursts of each arm, at most.")] = _ROUNDS,
    figures: Annotated[Path, typer.Option(help="Where they go.")] = CHECKOUT / "build/bench-quick.json",
) -> None:
    console = make_console()
    figures.unlink(missing_ok=True)  # a broken run leaves none
    stopwatch = Stopwatch(console.print)
    try:
        found = _run(nodes, pods, rounds, stopwatch)
    except KeyboardInterrupt:
        console.print("interrupted; the clusters are down", style="red")
        raise typer.Exit(130) from None
    except MissingPrerequisitesError as error:
        for line in error.missing:
            console.print(f"missing: {line}", style="red")
        raise typer.Exit(2) from None
    except (Broken, ClusterError, NotObserved, OSError, aiohttp.ClientError, ExceptionGroup) as error:
        console.print(f"broken: {first(error)}", style="red")
        raise typer.Exit(1) from None
    found.write(figures)
    _conclude(found, figures, console)
    raise typer.Exit(0 if found.passes else 1)


def _run(nodes: int, pods: int, rounds: int, stopwatch: Stopwatch) -> Figures:
    arms = [alone(nodes), noop(nodes, noop_binary(stopwatch)), ours(nodes)]
    with _clusters(arms, stopwatch) as clusters:
        return Figures(nodes, pods, asyncio.run(_measure(arms, clusters, pods, rounds, stopwatch)))


@contextmanager
def _clusters(arms: Sequence[Arm], report: Report) -> Iterator[list[Cluster]]:
    """A cluster for each arm; the logs are kept if the block fails."""
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        with ExitStack() as stack:
            clusters = []
            for arm in arms:
                clusters.append(stack.enter_context(Cluster.up(arm.spec, directory / arm.name)))
                report(f"{arm.name}: a cluster of {arm.spec.external_nodes} Nodes is up")
            yield clusters
    except BaseException:
        report(f"the logs are in {directory}")
        raise
    shutil.rmtree(directory)


async def _measure(
    arms: Sequence[Arm], clusters: Sequence[Cluster], pods: int, rounds: int, stopwatch: Stopwatch
) -> dict[str, ArmFigures]:
    found = {arm.name: ArmFigures() for arm in arms}
    async with AsyncExitStack() as stack:
        benches = [
            await stack.enter_async_context(Bench.of(arm, cluster))
            for arm, cluster in zip(arms, clusters, strict=True)
        ]
        for bench in benches:
            await _one_at_a_time(bench, found[bench.arm.name], stopwatch)
        for number in range(1, rounds + 1):
            begin = stopwatch.elapsed_s
            for bench in benches:
                await _one_burst(bench, pods, found[bench.arm.name], stopwatch)
            if number < rounds and 2 * stopwatch.elapsed_s - begin > _LAST_ROUND_ENDS_S:
                stopwatch(f"{number} of {rounds} rounds must do: this machine is busy")
                break
    return found


async def _one_at_a_time(bench: Bench, figures: ArmFigures, report: Report) -> None:
    """A burst before makes the connections and warms the caches."""
    await bench.burst(_WARM_UP_PODS)
    figures.idle_ms += await bench.idle(_IDLE_PODS)
    report(f"{bench.arm.name}: {_IDLE_PODS} Pods one at a time, p50 {figures.idle(50):.1f} ms")


async def _one_burst(bench: Bench, pods: int, figures: ArmFigures, report: Report) -> None:
    burst = await bench.burst(pods)
    figures.bursts.append(burst)
    report(f"{bench.arm.name}: {pods} Pods at once, {burst.pods_per_s:.0f} Pods/s")


def _conclude(found: Figures, path: Path, console: Console) -> None:
    console.print(_table(found))
    for verdict in found.verdicts():
        console.print(f"{verdict.word}: {verdict.words}", style="green" if verdict.kept else "red")
    console.print(f"The figures are in {path}.")


def _table(found: Figures) -> Table:
    title = f"{found.pods} Pods on {found.nodes} Nodes; create -> bound in ms"
    table = Table("kube-scheduler", title=title, box=ROUNDED)
    headings = (
        "Pods/s",
        "to no-op",
        "burst p50",
        "p95",
        "p99",
        "one at a time p50",
        "p99",
        "CPU ms/Pod: extender",
        "all",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    bar = found.arms["noop"].pods_per_s
    for name, arm in found.arms.items():
        bursts = (f"{arm.burst_bound(percent):.0f}" for percent in (50, 95, 99))
        idle = (f"{arm.idle(percent):.1f}" for percent in (50, 99))
        cpu = (f"{arm.extender_cpu_ms_per_pod:.1f}", f"{arm.cpu_ms_per_pod:.1f}")
        table.add_row(name, f"{arm.pods_per_s:.0f}", f"{arm.pods_per_s / bar:.2f}", *bursts, *idle, *cpu)
    return table


if __name__ == "__main__":
    app()
