"""Creates the Pods of a large run: waiting Pods (the backlog), and a stream of placed Pods. Also calls
/filter."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import orjson

from deploy.local.cluster import Cluster
from loadtest.harness.command import Broken
from loadtest.harness.concurrently import at_pace, beside, for_each, until
from loadtest.harness.pods import PODS, Manifest, ask, pod_manifest, watch
from wellknown.allocation import Allocation

_FULL: Final = "main"
_OPEN: Final = "ext"
"""_FULL is a partition with one Node, which the first Pods of the backlog fill. _OPEN is a partition
with all other Nodes."""

_WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_PARTITION: Final = "sunk.coreweave.com/partition"
_LEAST_MIB: Final = 64
_SIZES: Final = 50
"""Number of different amounts of memory. Pods with equal requests form one class in the extender's
queue, so this is also the number of classes."""
_AGAIN_S: Final = 0.1
_UNMANAGED_IN: Final = 5
"""One /filter call in this number of calls is about an unmanaged Pod."""
_GIVEN_BY_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


async def create_first(session: aiohttp.ClientSession) -> Manifest:
    """Creates the first Pod of the backlog through /mutate. Returns its manifest. The other Pods are
    copies of this Pod, and differ in memory."""
    first = pod_manifest("backlog-0", 1, labels={"app": "backlog"}, annotations={_PARTITION: _FULL})
    return _as_written(await ask(session, "POST", PODS, first))


async def create_others(session: aiohttp.ClientSession, like: Manifest, count: int) -> None:
    """Creates all of the `count` Pods except the first, which exists already. Deletes the webhooks for
    this time, so the extender may be stopped."""

    async def create(number: int) -> None:
        pod = deepcopy(like)
        pod["metadata"]["name"] = f"backlog-{number}"
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        requests["memory"] = f"{_LEAST_MIB + number % _SIZES}Mi"
        await ask(session, "POST", PODS, pod)

    listed = await ask(session, "GET", _WEBHOOKS)
    await ask(session, "DELETE", _WEBHOOKS)
    await for_each(range(1, count), create)
    for webhooks in listed["items"]:
        await ask(session, "POST", _WEBHOOKS, _as_written(webhooks))


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of Pods in a partition with free room. The Pods stay. If kube-apiserver is away, the
    stream waits.

    `_created` has the time (`time.monotonic`) just before each Pod's successful create call. `_lifted`
    has the time of each Pod's first version without a gate.
    """

    session: aiohttp.ClientSession
    _created: dict[str, float] = field(default_factory=dict)
    _lifted: dict[str, float] = field(default_factory=dict)

    async def create(self, number: int) -> None:
        name = f"stream-{number}"
        labels, annotations = {"app": "stream"}, {_PARTITION: _OPEN}
        manifest = pod_manifest(name, 1, labels=labels, annotations=annotations)
        while True:
            called = time.monotonic()
            with suppress(aiohttp.ClientError, TimeoutError):
                async with self.session.post(PODS, json=manifest) as answer:
                    await answer.read()
                    if answer.status in (201, 409):
                        self._created[name] = called
                        return
            await asyncio.sleep(_AGAIN_S)

    async def watch(self) -> None:
        while True:
            with suppress(aiohttp.ClientError, TimeoutError, Broken):
                await watch(self.session, {"labelSelector": "app=stream"}, self._see)
            await asyncio.sleep(_AGAIN_S)

    async def lags_ms(self, begin: float, end: float, within_s: float) -> list[float]:
        """Returns the times from the create call until the gate is lifted, for Pods created between
        `begin` and `end`. Raises Broken if a Pod exceeds the time limit."""

        def within() -> dict[str, float]:
            return {name: at for name, at in self._created.items() if begin <= at <= end}

        async def all_lifted() -> bool:
            return within().keys() <= self._lifted.keys()

        await until(all_lifted, "the gates of all streamed Pods are lifted", within_s)
        return [max(0.0, self._lifted[name] - at) * 1000 for name, at in within().items()]

    async def first_since(self, begin: float, within_s: float) -> float:
        """Waits until a Pod that was created after `begin` has no gate any more. Returns the time at
        which the first such Pod lost its gate."""

        async def lifted() -> float:
            since = (name for name, at in self._created.items() if at >= begin)
            return min((self._lifted[name] for name in since if name in self._lifted), default=0.0)

        return await until(lifted, "a gate is lifted", within_s)

    def _see(self, _: str, manifest: Manifest) -> None:
        if not manifest["spec"].get("schedulingGates"):
            self._lifted.setdefault(manifest["metadata"]["name"], time.monotonic())


Asked = tuple[float, float]
"""The start of a /filter call, by `time.monotonic`, and the milliseconds until the answer."""


@asynccontextmanager
async def asking_filter(cluster: Cluster, pace: float) -> AsyncIterator[Sequence[Asked]]:
    """Calls /filter with all Nodes at a steady pace, and yields the growing list of calls. If an answer
    is wrong, raises Broken in an ExceptionGroup."""
    names = cluster.spec.external_names
    url = f"http://127.0.0.1:{cluster.ports['extender-scheduler']}/scheduler/filter"
    bodies = [_filter_body(number, names) for number in range(_UNMANAGED_IN)]
    asked = list[Asked]()

    async def call(number: int) -> None:
        began = time.monotonic()
        async with session.post(url, data=bodies[number % len(bodies)]) as answer:
            content = await answer.read()
        asked.append((began, (time.monotonic() - began) * 1000))
        found = orjson.loads(content)
        if number % _UNMANAGED_IN and found.get("NodeNames") != [names[0]]:
            raise Broken(f"/filter: {str(found)[:200]}")

    async with aiohttp.ClientSession() as session, beside(at_pace(pace, call)):
        yield asked


def _filter_body(number: int, names: Sequence[str]) -> bytes:
    name, ours = f"asked-{number}", number % _UNMANAGED_IN > 0
    scheduler = "slurm-scheduler" if ours else "default-scheduler"
    annotations = Allocation(1, names[0]).annotations() if ours else {}
    who = {"uid": name, "namespace": "default"}
    manifest = pod_manifest(name, 1, 0, scheduler=scheduler, annotations=annotations, **who)
    return orjson.dumps({"Pod": manifest, "Nodes": None, "NodeNames": names})


def _as_written(manifest: Manifest) -> Manifest:
    """Returns the object without the fields that kube-apiserver adds."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in _GIVEN_BY_SERVER}
    return {key: value for key, value in manifest.items() if key != "status"} | {"metadata": metadata}
