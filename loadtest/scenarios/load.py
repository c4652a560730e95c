"""Measure /filter and /bind under load, at several numbers of Nodes. Extender and kube-apiserver are
real, Slurm is a stub or real, and locust plays kube-scheduler (loadtest/locustfile.py).

The Pods are created, and get their allocations, before the load starts. So the measured times are those
of /filter and /bind alone. The Pods are as on a mixed cluster: of each twenty, fifteen have their
allocation, one still waits for Slurm, and four are unmanaged and unknown to Slurm. Sizes, devices,
constraints, partitions and comments vary.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import aiohttp
import orjson
import typer
from pydantic import TypeAdapter

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.spec import ClusterSpec
from loadtest.harness.budgets import BUDGETS, Verdict, budgets, judged
from loadtest.harness.command import BUILD, Broken, command
from loadtest.harness.concurrently import for_each, until
from loadtest.harness.conditions import conditions
from loadtest.harness.pods import PODS, Manifest, api_session, ask, pod_manifest
from loadtest.harness.variants import Placer, Variant
from loadtest.slurmrestd_stub.__main__ import CLOSED_PARTITION, FEATURES
from wellknown.names import DEFAULT_PREFIX, NODE

_NODES: Final = [50, 1000, 5000]
_SIZE: Final = ClusterSpec(cpus_per_node=100, memory_mb=110_000, gpus_per_node=32)
"""The size of the Nodes. 50 such Nodes have room for all Pods of a minute."""
_LOCUSTFILE: Final = Path(__file__).parents[1] / "locustfile.py"
_SPARE: Final = 1.1
"""Factor for the number of prepared Pods. A locust user takes its next Pod before the Pod's start time,
so more Pods are needed than the rate times the seconds."""
_PREPARED_WITHIN_S: Final = 600.0

Slurm = Literal["stub", "real"]
_LOOK_S: Final = 0.5
_SIZES: Final = ((1, 0), (2, 1), (1, 0), (4, 0), (1, 1), (2, 0), (1, 0))
_ASKS: Final[Sequence[dict[str, str]]] = (
    {},
    {"constraints": "h100"},
    {"partition": "main", "comment": "a chat server"},
    {"constraints": "h100&ib", "timeout": "86400"},
    {"excluded-nodes": "external-[1-3]"},
)


class LoadKind(StrEnum):
    GRANTED = "granted"
    WAITING = "waiting"
    UNMANAGED = "unmanaged"

    @classmethod
    def of(cls, number: int) -> "LoadKind":
        if number % 20 == 0:
            return cls.WAITING
        return cls.UNMANAGED if number % 5 == 1 else cls.GRANTED


@dataclass(frozen=True, slots=True)
class PreparedPod:
    """A Pod for the load. `node` is the Node that Slurm granted, or ""."""

    kind: LoadKind
    manifest: Manifest
    node: str = ""


@dataclass(frozen=True, slots=True)
class PreparedPods:
    """Unbound Pods, in the order of the load, and all Nodes."""

    node_names: Sequence[str]
    pods: Sequence[PreparedPod]

    def write(self, path: Path) -> None:
        path.write_bytes(orjson.dumps(self))

    @classmethod
    def read(cls, path: Path) -> "PreparedPods":
        return TypeAdapter(cls).validate_json(path.read_bytes())


def load(
    *,
    nodes: Annotated[list[int], typer.Option(min=1, help="Nodes. May be repeated.")] = _NODES,
    seconds: Annotated[int, typer.Option(min=3, help="Duration for each number of Nodes.")] = 60,
    rate: Annotated[float, typer.Option(min=1, help="Pods a second.")] = 20.0,
    users: Annotated[int, typer.Option(min=1, help="Maximum number of Pods in progress.")] = 32,
    slurm: Annotated[Slurm, typer.Option(help="Slurm of the extender.")] = "stub",
    budgets_file: Annotated[Path, typer.Option("--budgets", help="File of the budgets.")] = BUDGETS,
    results: Annotated[Path, typer.Option(help="Folder for CSV, HTML and figures.")] = BUILD / "load",
) -> None:
    options = (f"--users={users}", f"--run-time={seconds}s", f"--rate={rate}")
    with command(results / "load.json") as run:
        results.mkdir(parents=True, exist_ok=True)
        # Fails early if a budget is missing.
        allowed = {count: budgets(f"load-{count}", budgets_file) for count in nodes}
        measured_at = {**conditions(), "slurm": slurm, "seconds": seconds, "pods_per_s": rate}
        loads, verdicts = list[dict[str, Any]](), list[Verdict]()
        for count in nodes:
            directory = run.directory / str(count)
            with _cluster(count, slurm, directory) as cluster:
                run.report(f"{count} Nodes are up")
                pods = asyncio.run(_prepared(cluster, int(rate * seconds * _SPARE)))
                run.report(f"{len(pods.pods)} Pods exist and have their allocations")
                pods.write(directory / "pods.json")
                calls = _locust(cluster, directory / "pods.json", options, results / f"{count}-nodes")
                asyncio.run(_check(cluster, pods, calls))
            loads.append({"nodes": count, "calls": calls})
            verdicts += judged(allowed[count], calls, f"{count} Nodes: ")
        measured_at["minutes"] = round(run.report.elapsed_s / 60, 1)
        run.conclude({"conditions": measured_at, "loads": loads}, verdicts)


@contextmanager
def _cluster(nodes: int, slurm: Slurm, directory: Path) -> Iterator[Cluster]:
    """Yields a cluster without kube-scheduler, because locust plays kube-scheduler. The extender keeps
    the jobs of unbound Pods during the whole run."""
    closed = f"PartitionName={CLOSED_PARTITION} Nodes=external-1 State=DOWN"
    like = replace(_SIZE, extender_settings=(("UNBOUND_DEADLINE_S", "3600"),), slurm_conf=(closed,))
    with Variant(Placer(slurm), nodes, like).up(directory) as running:
        cluster = running.cluster
        cluster.stop("kube-scheduler")
        if slurm == "real":
            changes = (f"{kind}Features={','.join(FEATURES)}" for kind in ("Available", "Active"))
            cluster.run_slurm("scontrol", "update", f"NodeName=external-[1-{nodes}]", *changes)
        yield cluster


def _locust(cluster: Cluster, pods: Path, options: Sequence[str], results: Path) -> dict[str, Any]:
    """Runs locust, and returns the figures. Raises Broken if locust leaves no figures."""
    figures = Path(f"{results}.json")
    figures.unlink(missing_ok=True)
    command = (
        *(sys.executable, "-m", "locust", "-f", str(_LOCUSTFILE), "--headless", "--only-summary"),
        *("-H", f"http://127.0.0.1:{cluster.ports['extender-scheduler']}", "-r", "100"),
        *("--csv", str(results), "--csv-full-history", "--html", f"{results}.html"),
        *("--metrics", cluster.probes["extender"][1]),
        *("--pods", str(pods), "--figures", str(figures), *options),
    )
    ended = subprocess.run(command, cwd=CHECKOUT, check=False)
    if not figures.exists():
        raise Broken(f"locust ended with {ended.returncode}, and left no figures")
    return dict(json.loads(figures.read_text()))


async def _check(cluster: Cluster, prepared: PreparedPods, calls: dict[str, Any]) -> None:
    """Checks that every reported binding exists, on the Node that Slurm granted. Raises Broken."""
    binds = [calls[kind] for kind in ("bind", "bind unmanaged") if kind in calls]
    reported = sum(each["calls"] - each["failed"] for each in binds)
    async with api_session(cluster) as session:
        bound = [pod for pod in await _pods(session) if pod["spec"].get("nodeName")]
    if len(bound) < reported:
        raise Broken(f"the extender reported {reported} bound Pods, but {len(bound)} are bound")
    known = {pod.manifest["metadata"]["uid"]: pod for pod in prepared.pods}
    for pod in bound:
        node, granted = pod["spec"]["nodeName"], known[pod["metadata"]["uid"]]
        if granted.kind is not LoadKind.UNMANAGED and node != granted.node:
            name, where = pod["metadata"]["name"], granted.node or "nothing"
            raise Broken(f"{name} is bound to {node}; Slurm granted {where}")


async def _prepared(cluster: Cluster, count: int) -> PreparedPods:
    """Creates the Pods, and waits until each Pod of the kind GRANTED has its allocation. Raises
    Broken."""
    async with api_session(cluster) as session:

        async def granted() -> Sequence[PreparedPod]:
            """Returns the Pods, or an empty list while an allocation is missing."""
            pods = [_known(pod) for pod in await _pods(session)]
            wait = any(pod.kind is LoadKind.GRANTED and not pod.node for pod in pods)
            return [] if wait else pods

        await for_each(_manifests(count), lambda pod: ask(session, "POST", PODS, pod))
        pods = await until(granted, "all Pods have their allocations", _PREPARED_WITHIN_S, _LOOK_S)
        return PreparedPods(cluster.spec.kubernetes_node_names, pods)


def _manifests(count: int) -> Iterator[Manifest]:
    """Yields Pods as users write them."""
    for number in range(count):
        kind, (cpus, gpus) = LoadKind.of(number), _SIZES[number % len(_SIZES)]
        asks, scheduler = _ASKS[number % len(_ASKS)], "slurm-scheduler"
        if kind is LoadKind.UNMANAGED:
            cpus, gpus, asks, scheduler = 1, 0, {}, "default-scheduler"
        elif kind is LoadKind.WAITING:
            asks = {"partition": CLOSED_PARTITION}
        annotations = {DEFAULT_PREFIX + key: value for key, value in asks.items()}
        more = {"labels": {"app": "chat"}, "annotations": annotations}
        yield pod_manifest(f"pod-{number}", cpus, gpus, scheduler=scheduler, **more)


async def _pods(session: aiohttp.ClientSession) -> list[Manifest]:
    return sorted((await ask(session, "GET", PODS))["items"], key=_number)


def _known(pod: Manifest) -> PreparedPod:
    metadata, gated = pod["metadata"], pod["spec"].get("schedulingGates")
    metadata.pop("managedFields", None)  # kube-scheduler drops managedFields
    node = "" if gated else metadata.get("annotations", {}).get(NODE, "")
    return PreparedPod(LoadKind.of(_number(pod)), pod, node)


def _number(pod: Manifest) -> int:
    return int(pod["metadata"]["name"].removeprefix("pod-"))
