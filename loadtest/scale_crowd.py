"""Whom a run at scale is about: Pods that wait, a stream that is placed, and who asks /filter."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple

import aiohttp
import orjson

from deploy.local.cluster import Cluster
from deploy.local.demo.pods import CONDITION, pod_manifest
from extender.placement.workload import Allocation
from loadtest.crowd import Broken, ask
from loadtest.together import for_each

_FULL: Final = "main"
"""The partition whose one Node the first of the backlog fill."""
_OPEN: Final = "ext"
"""That of all the others."""

_PODS: Final = "/api/v1/namespaces/default/pods"
_WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_PARTITION: Final = "sunk.coreweave.com/partition"
_CONNECTIONS: Final = 24
_LEAST_MIB: Final = 64
_KINDS: Final = 50
"""So many sizes, of which each has a line of its own."""
_STREAM: Final = {"labelSelector": "app=stream"}
_AGAIN_S: Final = 0.1
_UNMANAGED_IN: Final = 5
"""Of so many /filter calls one is about a Pod that is not ours."""
_GIVEN_BY_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


class Backlog:
    """Pods of one partition that is full. All are as /mutate made the first, but for the memory they ask
    for; it is asked about that one alone: asking about each would take three times as long."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._like: dict[str, Any] = {}

    async def create_first(self) -> None:
        """The extender answers /mutate."""
        manifest = pod_manifest("backlog-0", 1, 0)
        manifest["metadata"]["annotations"] = {_PARTITION: _FULL}
        manifest["metadata"]["labels"] = {"app": "backlog"}
        self._like = await ask(self._session, "POST", _PODS, json=manifest)
        self._like.pop("status", None)
        for name in _GIVEN_BY_SERVER:
            self._like["metadata"].pop(name, None)

    async def create_others(self, count: int) -> None:
        """All from the second to the last of `count`; no extender need run."""
        async with self._without_webhooks():
            await for_each(self._bodies(range(1, count)), self._create_one, _CONNECTIONS)

    async def told(self) -> Mapping[str, int]:
        """How many wait for each reason, by what their condition says; "" where nobody told them."""
        reasons, query = Counter[str](), {"labelSelector": "app=backlog", "limit": "2000"}
        while True:
            page = await ask(self._session, "GET", _PODS, params=query)
            reasons.update(_reason(pod) for pod in page["items"] if not pod["spec"].get("nodeName"))
            if not (following := page["metadata"].get("continue")):
                return dict(reasons.most_common())
            query["continue"] = following

    def _bodies(self, numbers: range) -> Iterator[bytes]:
        for number in numbers:
            pod = deepcopy(self._like)
            pod["metadata"]["name"] = f"backlog-{number}"
            requests = pod["spec"]["containers"][0]["resources"]["requests"]
            requests["memory"] = f"{_LEAST_MIB + number % _KINDS}Mi"
            yield orjson.dumps(pod)

    async def _create_one(self, body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        await ask(self._session, "POST", _PODS, data=body, headers=headers)

    @asynccontextmanager
    async def _without_webhooks(self) -> AsyncIterator[None]:
        listed = await ask(self._session, "GET", _WEBHOOKS)
        await ask(self._session, "DELETE", _WEBHOOKS)
        try:
            yield
        finally:
            for webhooks in listed["items"]:
                for name in _GIVEN_BY_SERVER:
                    webhooks["metadata"].pop(name, None)
                await ask(self._session, "POST", _WEBHOOKS, json=webhooks)


@dataclass(slots=True)
class _Streamed:
    created: float
    """Just before its create call, by `time.monotonic`; infinity until that has succeeded."""
    lifted: float | None = None
    """When it was first seen without its gate."""


class Stream:
    """Pods at a steady pace into a partition that has room; they stay. kube-apiserver may go away
    meanwhile, and is waited for."""

    def __init__(self, session: aiohttp.ClientSession, pace: float) -> None:
        self._session = session
        self._pace = pace
        self._number = 0
        self._pods: dict[str, _Streamed] = {}

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Until the end of the block."""
        async with asyncio.TaskGroup() as tasks:
            parts = [tasks.create_task(part()) for part in (self._create, self._watch)]
            try:
                yield
            finally:
                for part in parts:
                    part.cancel()

    def lags_ms(self, begin: float, end: float) -> list[float]:
        """From the create call to the gate lifted, of those that were created in a span of time. Raises
        Broken where the gate of one was not lifted."""
        within = [pod for pod in self._pods.values() if begin <= pod.created <= end]
        if left := [pod for pod in within if pod.lifted is None]:
            raise Broken(f"the gates of {len(left)} of {len(within)} streamed Pods are not lifted")
        return [max(0.0, pod.lifted - pod.created) * 1000 for pod in within if pod.lifted is not None]

    async def first_since(self, begin: float, within_s: float) -> float:
        """Waits until the gate of a Pod that was created since then is lifted; returns when that was."""
        async with asyncio.timeout(within_s):
            while True:
                pods = (pod for pod in self._pods.values() if begin <= pod.created < inf)
                lifted = [pod.lifted for pod in pods if pod.lifted is not None]
                if lifted:
                    return min(lifted)
                await asyncio.sleep(_AGAIN_S)

    async def settled(self, end: float, within_s: float) -> None:
        """Waits until the gates of all that were created until then are lifted, or the time is over."""

        def waits() -> bool:
            return any(pod.lifted is None and pod.created <= end for pod in self._pods.values())

        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while waits():  # noqa: ASYNC110 -- ten looks a second are enough
                    await asyncio.sleep(_AGAIN_S)

    async def _create(self) -> None:
        async with asyncio.TaskGroup() as creating:
            while True:
                self._number += 1
                creating.create_task(self._create_one(f"stream-{self._number}"))
                await asyncio.sleep(1 / self._pace)

    async def _create_one(self, name: str) -> None:
        manifest = pod_manifest(name, 1, 0)
        manifest["metadata"] |= {"labels": {"app": "stream"}, "annotations": {_PARTITION: _OPEN}}
        while True:
            called = time.monotonic()
            try:
                async with self._session.post(_PODS, json=manifest) as answer:
                    if answer.status in (201, 409):
                        self._pods.setdefault(name, _Streamed(0.0)).created = called
                        return
                    await answer.read()
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(_AGAIN_S)

    async def _watch(self) -> None:
        while True:
            with suppress(aiohttp.ClientError, TimeoutError, Broken):
                listed = await ask(self._session, "GET", _PODS, params=_STREAM)
                for pod in listed["items"]:
                    self._see(pod)
                await self._follow(listed["metadata"]["resourceVersion"])
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self, version: str) -> None:
        query = _STREAM | {"watch": "true", "resourceVersion": version}
        async with self._session.get(_PODS, params=query) as stream:
            async for line in stream.content:
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    return
                self._see(event["object"])

    def _see(self, manifest: dict[str, Any]) -> None:
        pod = self._pods.setdefault(manifest["metadata"]["name"], _Streamed(inf))
        if pod.lifted is None and not manifest["spec"].get("schedulingGates"):
            pod.lifted = time.monotonic()


class Asked(NamedTuple):
    """A call of /filter that was answered: when it began, by `time.monotonic`, and how long it took."""

    at: float
    ms: float


@asynccontextmanager
async def asking_filter(cluster: Cluster, pace: float) -> AsyncIterator[Sequence[Asked]]:
    """kube-scheduler's /filter with all Nodes, at a steady pace until the end of the block; most about
    Pods of ours that have their Node. Gives what was asked so far. Raises Broken (in a group) where an
    answer is wrong."""
    names = cluster.spec.external_names
    url = f"http://127.0.0.1:{cluster.ports['extender-scheduler']}/scheduler/filter"
    bodies = [_filter_body(number, names) for number in range(_UNMANAGED_IN)]
    asked = list[Asked]()

    async def ask(session: aiohttp.ClientSession, number: int) -> None:
        began = time.monotonic()
        async with session.post(url, data=bodies[number % len(bodies)]) as answer:
            told = await answer.read()
        asked.append(Asked(began, (time.monotonic() - began) * 1000))
        found = orjson.loads(told)
        if number % _UNMANAGED_IN and found.get("NodeNames") != [names[0]]:
            raise Broken(f"/filter: {str(found)[:200]}")

    async def ask_all() -> None:
        number = 0
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as asking:
            while True:
                asking.create_task(ask(session, number))
                number += 1
                await asyncio.sleep(1 / pace)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(ask_all())
        try:
            yield asked
        finally:
            task.cancel()


def _filter_body(number: int, names: Sequence[str]) -> bytes:
    manifest = pod_manifest(f"asked-{number}", 1, 0)
    manifest["metadata"] |= {"uid": f"asked-{number}", "namespace": "default"}
    if number % _UNMANAGED_IN:
        manifest["metadata"]["annotations"] = Allocation(1, names[0]).annotations()
    else:
        manifest["spec"]["schedulerName"] = "default-scheduler"
    return orjson.dumps({"Pod": manifest, "Nodes": None, "NodeNames": names})


def _reason(pod: Mapping[str, Any]) -> str:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((each["reason"] for each in conditions if each["type"] == CONDITION), "")
