"""Many Pods of one cluster: created over several connections at once, seen bound by one watch.

Made to cost little beside what it measures: the watch asks for bound Pods only, so that what an
extender writes before costs the watcher nothing.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from deploy.local.cluster import Cluster
from deploy.local.demo.pods import Manifest, Sighting, administrator_session, pod_manifest
from loadtest.together import for_each

_PODS: Final = "/api/v1/namespaces/default/pods"
_HEADERS: Final = {"Content-Type": "application/json"}
_CONNECTIONS: Final = 16
_LONGEST_S: Final = 3600
_CLOSING_S: Final = 0.1
_BOUND_ONLY: Final = "spec.nodeName!="


class Broken(Exception):
    """The run says nothing of speed: something did not work. The message says what."""


def first(error: Exception) -> Exception:
    """What a group of errors began with; other errors as they are."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


@dataclass(frozen=True, slots=True)
class Wanted:
    """A Pod to be created; memory goes with the CPUs."""

    name: str
    cpus: int
    gpus: int


class Crowd:
    """The Pods that are there now."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._pods: dict[str, Sighting] = {}
        self._unbound = 0
        self._not_running = set[str]()
        self._version = ""
        self._news = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def of(cls, cluster: Cluster) -> AsyncIterator["Crowd"]:
        """Watches until the end of the block; a watch that breaks off ends the block with its error."""
        async with api_session(cluster) as session, asyncio.TaskGroup() as tasks:
            crowd = cls(session)
            crowd._version = (await ask(session, "GET", _PODS))["metadata"]["resourceVersion"]
            watch = tasks.create_task(crowd._watch())
            try:
                yield crowd
            finally:
                watch.cancel()

    async def create(self, wanted: Iterable[Wanted], per_s: float | None = None) -> list[Sighting]:
        """Creates Pods in their order, so many a second or as fast as kube-apiserver takes them."""
        created, begin = list[Sighting](), time.perf_counter()

        async def create(numbered: tuple[int, Wanted]) -> None:
            number, each = numbered
            if per_s is not None:
                await asyncio.sleep(begin + number / per_s - time.perf_counter())
            created.append(await self._create(each))

        await for_each(enumerate(wanted), create, _CONNECTIONS)
        return created

    async def all_bound(self, within_s: float) -> None:
        """Waits until every Pod has been seen bound."""
        await self._until(lambda: not self._unbound, "bound", within_s)

    async def all_running(self, within_s: float) -> None:
        """Waits until the kubelets have said of every Pod that it runs."""
        await self._until(lambda: not self._not_running, "running", within_s)

    async def clear(self, within_s: float) -> None:
        """Deletes every Pod, and waits until the kubelets have ended all: by force their jobs would be
        held for their whole grace."""
        await ask(self._session, "DELETE", _PODS)
        await self._until(lambda: not self._pods, "gone", within_s)

    async def _create(self, wanted: Wanted) -> Sighting:
        body = orjson.dumps(pod_manifest(wanted.name, wanted.cpus, wanted.gpus))
        pod = Sighting(wanted.name, wanted.cpus, wanted.gpus, time.perf_counter())
        self._pods[pod.name] = pod
        self._unbound += 1
        self._not_running.add(pod.name)
        await ask(self._session, "POST", _PODS, data=body, headers=_HEADERS)
        return pod

    async def _watch(self) -> None:
        """kube-apiserver ends a watch that it cannot keep up with: then it goes on where it ended."""
        asked = {"watch": "true", "fieldSelector": _BOUND_ONLY, "timeoutSeconds": str(_LONGEST_S)}
        while True:
            since = {"resourceVersion": self._version}
            async with self._session.get(_PODS, params=asked | since) as stream:
                async for line in stream.content:
                    self._observe(orjson.loads(line), time.perf_counter())

    def _observe(self, event: Manifest, now: float) -> None:
        if event["type"] == "ERROR":
            raise Broken(f"the watch of Pods: {event['object'].get('message')}")
        metadata = event["object"]["metadata"]
        self._version = metadata["resourceVersion"]
        pod = self._pods.get(metadata["name"])
        if pod is None:
            return
        pod.manifest = event["object"]
        if pod.bound is None:
            pod.bound = now
            self._unbound -= 1
        if event["object"]["status"].get("phase") == "Running":
            self._not_running.discard(pod.name)
        if event["type"] == "DELETED":
            pod.gone = True
            del self._pods[pod.name]
            self._not_running.discard(pod.name)
        self._news.set()

    async def _until(self, holds: Callable[[], bool], what: str, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            left = {"bound": self._unbound, "running": len(self._not_running)}.get(what, len(self._pods))
            raise Broken(f"{left} Pods are not {what} after {within_s:g} s") from None


async def ask(session: aiohttp.ClientSession, method: str, path: str, **options: Any) -> dict[str, Any]:
    """kube-apiserver's answer. Raises Broken where it is an error."""
    async with session.request(method, path, **options) as answer:
        body: dict[str, Any] = orjson.loads(await answer.read())
    if answer.status >= 400:
        raise Broken(f"{method} {path}: {body.get('message')}")
    return body


@asynccontextmanager
async def api_session(cluster: Cluster) -> AsyncIterator[aiohttp.ClientSession]:
    """HTTP to kube-apiserver as the administrator."""
    try:
        async with administrator_session(cluster) as session:
            yield session
    finally:
        await asyncio.sleep(_CLOSING_S)  # TLS connections end a moment after their session
