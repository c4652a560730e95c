"""`python -m loadtest.load`: filter, prioritize and bind under load, at several numbers of Nodes.

The extender, kube-apiserver and etcd are real, Slurm is a stub (loadtest/slurmrestd_stub) or real too;
kube-scheduler's part is locust's (loadtest/locustfile.py). Exit status 1: the run is broken, or over a
budget of loadtest/budgets.toml.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError, MissingPrerequisitesError
from deploy.local.layout import CHECKOUT
from deploy.local.progress import Report, Stopwatch
from deploy.local.spec import ClusterSpec
from loadtest.budgets import BUDGETS, budgets
from loadtest.crowd import Broken
from loadtest.slurmrestd_stub.__main__ import FEATURES
from loadtest.slurmrestd_stub.process import stub
from loadtest.stock import CLOSED_PARTITION, Kind, Stock, bound, lay_in
from slurm_client import hostlist

# So many that 50 Nodes are enough for all Pods of a minute.
CPUS_PER_NODE: Final = 100
GPUS_PER_NODE: Final = 32
MEMORY_MB: Final = 1100 * CPUS_PER_NODE
_LOCUSTFILE: Final = Path(__file__).with_name("locustfile.py")
_SPARE: Final = 1.1
"""Pods more than the rate will need: who comes a moment early finds one."""
_LAID_IN_WITHIN_S: Final = 600.0


class Slurm(StrEnum):
    STUB = "stub"
    REAL = "real"


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of each number of Nodes; `locust` are its options."""

    pods: int
    slurm: Slurm
    locust: Sequence[str]
    results: Path


app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def load(
    *,
    nodes: Annotated[list[int], typer.Option(min=1, help="Nodes; may be given several times.")] = [  # noqa: B006
        50,
        1000,
        5000,
    ],
    seconds: Annotated[int, typer.Option(min=3, help="How long each of them is loaded.")] = 60,
    rate: Annotated[float, typer.Option(min=1, help="Pods a second.")] = 20.0,
    users: Annotated[int, typer.Option(min=1, help="How many Pods are under way, at most.")] = 32,
    slurm: Annotated[Slurm, typer.Option(help="Whom the extender asks.")] = Slurm.STUB,
    budgets_file: Annotated[Path, typer.Option("--budgets", help="What is allowed.")] = BUDGETS,
    results: Annotated[Path, typer.Option(help="Where CSV, HTML and figures go.")] = CHECKOUT
    / "build/load",
) -> None:
    stopwatch = Stopwatch(typer.echo)
    results.mkdir(parents=True, exist_ok=True)
    options = [f"--users={users}", f"--run-time={seconds}s", f"--rate={rate}"]
    options += [f"--budgets={budgets_file}"]
    asked = Load(int(rate * seconds * _SPARE), slurm, options, results)
    try:
        for count in nodes:  # a wrong file is better known before
            budgets(budgets_file, count)
        kept = [_load(count, asked, stopwatch) for count in nodes]
    except MissingPrerequisitesError as error:
        for line in error.missing:
            typer.echo(f"missing: {line}")
        raise typer.Exit(2) from None
    except (Broken, ClusterError, ValueError, OSError) as error:
        typer.echo(f"broken: {error}")
        raise typer.Exit(1) from None
    typer.echo(f"CSV, HTML and figures are in {results}.")
    raise typer.Exit(0 if all(kept) else 1)


def _load(nodes: int, asked: Load, report: Report) -> bool:
    """Whether the budgets are kept."""
    directory = Path(tempfile.mkdtemp(prefix="load-"))
    results = asked.results / f"{nodes}-nodes"
    try:
        with _cluster(nodes, asked.slurm, directory / "cluster") as cluster:
            report(f"{nodes} Nodes are up")
            stock = asyncio.run(lay_in(cluster, asked.pods, _LAID_IN_WITHIN_S))
            report(f"{asked.pods} Pods are there, and have their allocations")
            stock.write(directory / "stock.json")
            kept = _locust(cluster, directory / "stock.json", asked.locust, results)
            _check(stock, asyncio.run(bound(cluster)), _figures(results))
            report(f"{nodes} Nodes: {'all budgets are kept' if kept else 'OVER BUDGET'}")
    except BaseException:
        report(f"the logs are in {directory}")
        raise
    shutil.rmtree(directory)
    return kept


@contextmanager
def _cluster(nodes: int, slurm: Slurm, directory: Path) -> Iterator[Cluster]:
    """Without a kube-scheduler: locust plays its part."""
    if slurm is Slurm.REAL:
        with Cluster.up(_spec(nodes), directory) as cluster:
            cluster.stop("kube-scheduler")
            everywhere, features = hostlist.compress(cluster.spec.external_names), ",".join(FEATURES)
            changes = (f"AvailableFeatures={features}", f"ActiveFeatures={features}")
            cluster.run_slurm("scontrol", "update", f"NodeName={everywhere}", *changes)
            yield cluster
        return
    sizes = (f"--nodes={nodes}", f"--cpus={CPUS_PER_NODE}", f"--gpus={GPUS_PER_NODE}")
    with (
        stub(*sizes, f"--memory-mb={MEMORY_MB}") as url,
        Cluster.up(_spec(nodes, ("SLURMRESTD_URL", url)), directory) as cluster,
    ):
        cluster.stop("kube-scheduler")
        yield cluster


def _spec(nodes: int, *settings: tuple[str, str]) -> ClusterSpec:
    """With a Slurm in any case. Pods wait for locust: none is given back meanwhile."""
    return ClusterSpec(
        nodes=0,
        external_nodes=nodes,
        cpus_per_node=CPUS_PER_NODE,
        memory_mb=MEMORY_MB,
        gpus_per_node=GPUS_PER_NODE,
        slurm_conf=(f"PartitionName={CLOSED_PARTITION} Nodes=external-1 State=DOWN",),
        extender_settings=(*settings, ("UNBOUND_DEADLINE_S", "3600")),
    )


def _locust(cluster: Cluster, stock: Path, options: Sequence[str], results: Path) -> bool:
    """Whether it ends with 0. Raises Broken where it did not run."""
    command = (
        *(sys.executable, "-m", "locust", "-f", str(_LOCUSTFILE), "--headless", "--only-summary"),
        *("-H", f"http://127.0.0.1:{cluster.ports['extender-scheduler']}", "-r", "100"),
        *("--csv", str(results), "--csv-full-history", "--html", f"{results}.html"),
        *("--metrics", f"http://127.0.0.1:{cluster.ports['extender-metrics']}/metrics"),
        *("--stock", str(stock), "--figures", str(_figures(results)), *options),
    )
    _figures(results).unlink(missing_ok=True)
    ended = subprocess.run(command, cwd=CHECKOUT, check=False)
    if not _figures(results).exists():
        raise Broken(f"locust ended with {ended.returncode}, and left no figures")
    return ended.returncode == 0


def _figures(results: Path) -> Path:
    return Path(f"{results}.json")


def _check(stock: Stock, nodes: dict[str, str], figures: Path) -> None:
    """What was said to be bound is, and where Slurm granted it. Raises Broken."""
    told = json.loads(figures.read_text())
    binds = [told[kind] for kind in ("bind", "bind unmanaged") if kind in told]
    said = sum(each["calls"] - each["failed"] for each in binds)
    if len(nodes) < said:
        raise Broken(f"{said} Pods were said to be bound, and {len(nodes)} are")
    for pod in stock.pods:
        node = nodes.get(pod.manifest["metadata"]["uid"])
        if node and pod.kind is not Kind.UNMANAGED and node != pod.node:
            name = pod.manifest["metadata"]["name"]
            raise Broken(f"{name} is bound to {node}; Slurm granted {pod.node or 'nothing'}")


if __name__ == "__main__":
    app()
