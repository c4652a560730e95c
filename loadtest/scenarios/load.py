"""filter, prioritize and bind under load, at several numbers of Nodes. Extender and kube-apiserver are
real, Slurm is a stub or real too; kube-scheduler's part is locust's (loadtest/locustfile.py)."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from loadtest.harness.budgets import BUDGETS, Verdict, budgets, judged
from loadtest.harness.command import BUILD, Broken, command
from loadtest.harness.variants import NodeSize, Placer, Variant
from loadtest.scenarios.prepared_pods import LoadKind, PreparedPods, bound, prepare
from loadtest.slurmrestd_stub.__main__ import CLOSED_PARTITION, FEATURES
from slurm_client import hostlist

_SIZE: Final = NodeSize(cpus=100, memory_mb=110_000, gpus=32)
"""So large that 50 Nodes are enough for all Pods of a minute."""
_LOCUSTFILE: Final = Path(__file__).parents[1] / "locustfile.py"
_SPARE: Final = 1.1
"""Pods more than the rate will need: who comes a moment early finds one."""
_PREPARED_WITHIN_S: Final = 600.0

Slurm = Literal["stub", "real"]


def load(
    *,
    nodes: Annotated[list[int], typer.Option(min=1, help="Nodes; may be given several times.")] = [  # noqa: B006
        *(50, 1000, 5000)
    ],
    seconds: Annotated[int, typer.Option(min=3, help="How long each of them is loaded.")] = 60,
    rate: Annotated[float, typer.Option(min=1, help="Pods a second.")] = 20.0,
    users: Annotated[int, typer.Option(min=1, help="How many Pods are under way, at most.")] = 32,
    slurm: Annotated[Slurm, typer.Option(help="Whom the extender asks.")] = "stub",
    budgets_file: Annotated[Path, typer.Option("--budgets", help="What is allowed.")] = BUDGETS,
    results: Annotated[Path, typer.Option(help="Where CSV, HTML and figures go.")] = BUILD / "load",
) -> None:
    options = (f"--users={users}", f"--run-time={seconds}s", f"--rate={rate}")
    with command(results / "load.json") as run:
        results.mkdir(parents=True, exist_ok=True)
        allowed = {count: budgets(f"load-{count}", budgets_file) for count in nodes}  # or wrong at once
        found, verdicts = dict[str, Any](), list[Verdict]()
        for count in nodes:
            directory = run.directory / str(count)
            with _cluster(count, slurm, directory) as cluster:
                run.report(f"{count} Nodes are up")
                pods = asyncio.run(prepare(cluster, int(rate * seconds * _SPARE), _PREPARED_WITHIN_S))
                run.report(f"{len(pods.pods)} Pods are there, and have their allocations")
                pods.write(directory / "pods.json")
                told = _locust(cluster, directory / "pods.json", options, results / f"{count}-nodes")
                _check(pods, asyncio.run(bound(cluster)), told)
            found[f"{count}-nodes"] = told
            verdicts += judged({f"{count} Nodes:": allowed[count]}, {f"{count} Nodes:": told})
        run.conclude(found, verdicts)


@contextmanager
def _cluster(nodes: int, slurm: Slurm, directory: Path) -> Iterator[Cluster]:
    """Locust is its kube-scheduler. Pods wait for it: none is given back meanwhile."""
    closed = f"PartitionName={CLOSED_PARTITION} Nodes=external-1 State=DOWN"
    settings = (("UNBOUND_DEADLINE_S", "3600"),)
    variant = Variant(Placer(slurm), nodes, size=_SIZE, settings=settings, slurm_conf=(closed,))
    with variant.up(directory) as running:
        cluster = running.cluster
        cluster.stop("kube-scheduler")
        if slurm == "real":
            everywhere, features = hostlist.compress(cluster.spec.external_names), ",".join(FEATURES)
            changes = (f"AvailableFeatures={features}", f"ActiveFeatures={features}")
            cluster.run_slurm("scontrol", "update", f"NodeName={everywhere}", *changes)
        yield cluster


def _locust(cluster: Cluster, pods: Path, options: Sequence[str], results: Path) -> dict[str, Any]:
    """Its figures. Raises Broken where it leaves none."""
    figures = Path(f"{results}.json")
    figures.unlink(missing_ok=True)
    ended = subprocess.run(
        (
            *(sys.executable, "-m", "locust", "-f", str(_LOCUSTFILE), "--headless", "--only-summary"),
            *("-H", f"http://127.0.0.1:{cluster.ports['extender-scheduler']}", "-r", "100"),
            *("--csv", str(results), "--csv-full-history", "--html", f"{results}.html"),
            *("--metrics", cluster.probes["extender"][1]),
            *("--pods", str(pods), "--figures", str(figures), *options),
        ),
        cwd=CHECKOUT,
        check=False,
    )
    if not figures.exists():
        raise Broken(f"locust ended with {ended.returncode}, and left no figures")
    told: dict[str, Any] = json.loads(figures.read_text())
    return told


def _check(pods: PreparedPods, nodes: dict[str, str], told: dict[str, Any]) -> None:
    """What was said to be bound is, and where Slurm granted it. Raises Broken."""
    binds = [told[kind] for kind in ("bind", "bind unmanaged") if kind in told]
    said = sum(each["calls"] - each["failed"] for each in binds)
    if len(nodes) < said:
        raise Broken(f"{said} Pods were said to be bound, and {len(nodes)} are")
    for pod in pods.pods:
        node = nodes.get(pod.manifest["metadata"]["uid"])
        if node and pod.kind is not LoadKind.UNMANAGED and node != pod.node:
            name = pod.manifest["metadata"]["name"]
            raise Broken(f"{name} is bound to {node}; Slurm granted {pod.node or 'nothing'}")
