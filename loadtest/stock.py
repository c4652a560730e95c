"""The Pods of a load run: created and granted beforehand, so that what is timed is the verbs alone.

As they arrive on a mixed cluster: of each twenty, fifteen have got their allocation, one still waits for
Slurm, and four are others', of which Slurm knows nothing. Sizes, devices, constraints, partitions and
comments vary. They are what kube-apiserver has of them, fields of its own included.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from deploy.local.cluster import Cluster
from deploy.local.demo.pods import GPU
from loadtest.crowd import Broken, api_session, ask
from loadtest.together import for_each

Manifest = dict[str, Any]

_PODS: Final = "/api/v1/namespaces/default/pods"
_PREFIX: Final = "sunk.coreweave.com/"
_NODE: Final = "slurm-extender.io/node"
_CONNECTIONS: Final = 16
_LOOK_S: Final = 0.5
_SIZES: Final = ((1, 0), (2, 1), (1, 0), (4, 0), (1, 1), (2, 0), (1, 0))
_ASKS: Final[Sequence[dict[str, str]]] = (
    {},
    {"constraints": "h100"},
    {"partition": "main", "comment": "a chat server"},
    {"constraints": "h100&ib", "timeout": "86400"},
    {"excluded-nodes": "external-[1-3]"},
)
CLOSED_PARTITION: Final = "native"
"""The stub's that starts nothing."""


class Kind(StrEnum):
    GRANTED = "granted"
    WAITING = "waiting"
    UNMANAGED = "unmanaged"


@dataclass(frozen=True, slots=True)
class StockedPod:
    """`node` is the one that Slurm granted, "" where it has not."""

    kind: Kind
    manifest: Manifest
    node: str = ""


@dataclass(frozen=True, slots=True)
class Stock:
    """Pods of which none is bound, in the order in which they are to be taken, and all Nodes."""

    node_names: Sequence[str]
    pods: Sequence[StockedPod]

    def write(self, path: Path) -> None:
        path.write_bytes(orjson.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Stock":
        told = orjson.loads(path.read_bytes())
        pods = [StockedPod(Kind(pod["kind"]), pod["manifest"], pod["node"]) for pod in told["pods"]]
        return cls(told["node_names"], pods)


def kind_of(number: int) -> Kind:
    """That of the Pod of that number."""
    if number % 20 == 0:
        return Kind.WAITING
    return Kind.UNMANAGED if number % 5 == 1 else Kind.GRANTED


def manifests(count: int) -> Iterator[Manifest]:
    """As their authors write them."""
    for number in range(count):
        cpus, gpus = _SIZES[number % len(_SIZES)]
        asks = _ASKS[number % len(_ASKS)]
        match kind_of(number):
            case Kind.UNMANAGED:
                yield _manifest(f"pod-{number}", 1, 0, {}, scheduler="default-scheduler")
            case Kind.WAITING:
                yield _manifest(f"pod-{number}", cpus, gpus, {"partition": CLOSED_PARTITION})
            case Kind.GRANTED:
                yield _manifest(f"pod-{number}", cpus, gpus, asks)


async def lay_in(cluster: Cluster, count: int, within_s: float) -> Stock:
    """Creates the Pods of a cluster whose kube-scheduler does not run, and waits until each that can has
    its allocation. Raises Broken."""
    async with api_session(cluster) as session:
        await _create_all(session, count)
        try:
            async with asyncio.timeout(within_s):
                return await _all_granted(cluster, session)
        except TimeoutError:
            raise Broken(f"not all Pods have their allocations after {within_s:g} s") from None


async def bound(cluster: Cluster) -> dict[str, str]:
    """The Nodes of the Pods that are bound now, by their uids."""
    async with api_session(cluster) as session:
        pods = await _pods(session)
    return {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")
    }


def _manifest(
    name: str, cpus: int, gpus: int, asks: dict[str, str], scheduler: str = "slurm-scheduler"
) -> Manifest:
    limits = {"cpu": str(cpus), "memory": f"{cpus}Gi", **({GPU: str(gpus)} if gpus else {})}
    container = {"name": "server", "image": "example.com/chat:1", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "chat"},
            "annotations": {_PREFIX + key: value for key, value in asks.items()},
        },
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


async def _create_all(session: aiohttp.ClientSession, count: int) -> None:
    async def create(manifest: Manifest) -> None:
        await ask(session, "POST", _PODS, json=manifest)

    await for_each(manifests(count), create, _CONNECTIONS)


async def _pods(session: aiohttp.ClientSession) -> list[Manifest]:
    found: list[Manifest] = (await ask(session, "GET", _PODS))["items"]
    return found


async def _all_granted(cluster: Cluster, session: aiohttp.ClientSession) -> Stock:
    while True:
        if stock := _stock(cluster, await _pods(session)):
            return stock
        await asyncio.sleep(_LOOK_S)


def _stock(cluster: Cluster, pods: Sequence[Manifest]) -> Stock | None:
    """None while one that is to be granted is not."""
    stocked = []
    for pod in sorted(pods, key=_number):
        node = pod["metadata"].get("annotations", {}).get(_NODE, "")
        kind = kind_of(_number(pod))
        if kind is Kind.GRANTED and (not node or pod["spec"].get("schedulingGates")):
            return None
        pod["metadata"].pop("managedFields", None)  # kube-scheduler keeps none
        stocked.append(StockedPod(kind, pod, node))
    return Stock([*cluster.spec.node_names, *cluster.spec.external_names], stocked)


def _number(pod: Manifest) -> int:
    return int(pod["metadata"]["name"].removeprefix("pod-"))
