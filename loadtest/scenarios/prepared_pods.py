"""The Pods of a load run: created and granted beforehand, so that what is timed is the verbs alone.

As they arrive on a mixed cluster: of each twenty, fifteen have got their allocation, one still waits for
Slurm, and four are others', of which Slurm knows nothing. Sizes, devices, constraints, partitions and
comments vary. They are what kube-apiserver has of them, fields of its own included.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import aiohttp
import orjson
from pydantic import TypeAdapter

from deploy.local.cluster import Cluster
from loadtest.harness.concurrently import for_each, until
from loadtest.harness.pods import PODS, Manifest, api_session, ask, pod_manifest
from loadtest.slurmrestd_stub.__main__ import CLOSED_PARTITION

_PREFIX: Final = "sunk.coreweave.com/"
_NODE: Final = "slurm-extender.io/node"
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
        """That of the Pod of that number."""
        if number % 20 == 0:
            return cls.WAITING
        return cls.UNMANAGED if number % 5 == 1 else cls.GRANTED


@dataclass(frozen=True, slots=True)
class PreparedPod:
    """`node` is the one that Slurm granted, "" where it has not."""

    kind: LoadKind
    manifest: Manifest
    node: str = ""


@dataclass(frozen=True, slots=True)
class PreparedPods:
    """Pods of which none is bound, in the order in which they are to be taken, and all Nodes."""

    node_names: Sequence[str]
    pods: Sequence[PreparedPod]

    def write(self, path: Path) -> None:
        path.write_bytes(orjson.dumps(self))

    @classmethod
    def read(cls, path: Path) -> "PreparedPods":
        return TypeAdapter(cls).validate_json(path.read_bytes())


async def prepare(cluster: Cluster, count: int, within_s: float) -> PreparedPods:
    """Creates the Pods of a cluster whose kube-scheduler does not run, and waits until each that can has
    its allocation. Raises Broken."""
    async with api_session(cluster) as session:

        async def create(manifest: Manifest) -> None:
            await ask(session, "POST", PODS, body=manifest)

        async def prepared() -> PreparedPods | None:
            """None while one that is to be granted is not."""
            pods = [_prepared(pod) for pod in await _pods(session)]
            if any(pod.kind is LoadKind.GRANTED and not pod.node for pod in pods):
                return None
            return PreparedPods([*cluster.spec.node_names, *cluster.spec.external_names], pods)

        await for_each(_manifests(count), create)
        return await until(prepared, "all Pods have their allocations", within_s, _LOOK_S)


async def bound(cluster: Cluster) -> dict[str, str]:
    """The Nodes of the Pods that are bound now, by their uids."""
    async with api_session(cluster) as session:
        pods = await _pods(session)
    return {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")
    }


def _manifests(count: int) -> Iterator[Manifest]:
    """As their authors write them."""
    for number in range(count):
        kind, (cpus, gpus) = LoadKind.of(number), _SIZES[number % len(_SIZES)]
        asks, scheduler = _ASKS[number % len(_ASKS)], "slurm-scheduler"
        if kind is LoadKind.UNMANAGED:
            cpus, gpus, asks, scheduler = 1, 0, {}, "default-scheduler"
        elif kind is LoadKind.WAITING:
            asks = {"partition": CLOSED_PARTITION}
        annotations = {_PREFIX + key: value for key, value in asks.items()}
        more = {"labels": {"app": "chat"}, "annotations": annotations}
        yield pod_manifest(f"pod-{number}", cpus, gpus, scheduler=scheduler, **more)


async def _pods(session: aiohttp.ClientSession) -> list[Manifest]:
    found: list[Manifest] = (await ask(session, "GET", PODS))["items"]
    return sorted(found, key=_number)


def _prepared(pod: Manifest) -> PreparedPod:
    metadata, gated = pod["metadata"], pod["spec"].get("schedulingGates")
    metadata.pop("managedFields", None)  # kube-scheduler keeps none
    node = "" if gated else metadata.get("annotations", {}).get(_NODE, "")
    return PreparedPod(LoadKind.of(_number(pod)), pod, node)


def _number(pod: Manifest) -> int:
    return int(pod["metadata"]["name"].removeprefix("pod-"))
