"""Creates many Pods in one cluster over several connections. A single watch sees only the bound Pods,
and so costs little."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from deploy.local.cluster import Cluster
from deploy.local.demo.pods import administrator_session
from loadtest.harness.command import Broken
from loadtest.harness.concurrently import beside, for_each

PODS: Final = "/api/v1/namespaces/default/pods"
_GPU: Final = "nvidia.com/gpu"
_JOB_ID: Final = "slurm-extender.io/job-id"
_LONGEST_S: Final = 3600
_CLOSING_S: Final = 0.1
_BOUND_ONLY: Final = "spec.nodeName!="

Manifest = dict[str, Any]
Wanted = tuple[str, int, int]
"""A Pod to create: name, CPUs and GPUs. The memory is proportional to the CPUs."""


@dataclass(slots=True)
class Pod:
    """A Pod. Times are of `time.perf_counter`, in seconds.

    * `created`: just before the create call
    * `bound`: when the watch delivered the first version with a Node
    * `node`: empty if the Pod is not bound, or is being deleted
    * `job_id`: 0 if the Pod has no job
    """

    name: str
    created: float
    bound: float = 0.0
    node: str = ""
    job_id: int = 0

    @property
    def bound_ms(self) -> float:
        return (self.bound - self.created) * 1000


class Pods:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._pods: dict[str, Pod] = {}
        self._unbound = set[str]()
        self._not_running = set[str]()
        self._version = ""
        self._news = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def of(cls, session: aiohttp.ClientSession) -> AsyncIterator["Pods"]:
        """Watches the Pods until the end of the block. If the watch fails, the block ends with the
        watch's error."""
        pods = cls(session)
        pods._version = (await ask(session, "GET", PODS))["metadata"]["resourceVersion"]
        async with beside(pods._watch()):
            yield pods

    async def create(
        self,
        wanted: Iterable[Wanted],
        per_s: float | None = None,
        made: Callable[[str, int, int], Manifest] | None = None,
    ) -> list[Pod]:
        """Creates the Pods in order, `per_s` each second or as fast as kube-apiserver answers. `made`
        makes the manifest; the default is `pod_manifest`."""
        created, begin = list[Pod](), time.perf_counter()

        async def create(numbered: tuple[int, Wanted]) -> None:
            number, (name, cpus, gpus) = numbered
            if per_s is not None:
                await asyncio.sleep(begin + number / per_s - time.perf_counter())
            manifest = (made or pod_manifest)(name, cpus, gpus)
            pod = self._pods[name] = Pod(name, time.perf_counter())
            self._unbound.add(name)
            self._not_running.add(name)
            await ask(self._session, "POST", PODS, manifest)
            created.append(pod)

        await for_each(enumerate(wanted), create)
        return created

    async def all_bound(self, within_s: float) -> None:
        """Waits until all Pods are bound. Raises Broken after the timeout, as the other methods do."""
        await self._until_none(self._unbound, "bound", within_s)

    async def all_running(self, within_s: float) -> None:
        """Waits until the kubelets have reported all Pods as running."""
        await self._until_none(self._not_running, "running", within_s)

    async def clear(self, within_s: float) -> None:
        """Deletes every Pod, and waits until the kubelets have ended all Pods. The deletion is not
        forced, because jobs stay after a forced deletion."""
        await ask(self._session, "DELETE", PODS)
        await self._until_none(self._pods, "gone", within_s)

    async def _watch(self) -> None:
        """Watches without end. kube-apiserver ends a watch that falls behind. The next watch continues
        at the same version."""
        while True:
            query = {"fieldSelector": _BOUND_ONLY, "resourceVersion": self._version}
            await watch(self._session, query, self._observe)

    def _observe(self, kind: str, manifest: Manifest) -> None:
        now, metadata = time.perf_counter(), manifest["metadata"]
        self._version = metadata["resourceVersion"]
        pod = self._pods.get(metadata["name"])
        if pod is None:
            return
        pod.bound = pod.bound or now
        pod.node = "" if metadata.get("deletionTimestamp") else manifest["spec"]["nodeName"]
        pod.job_id = int(metadata.get("annotations", {}).get(_JOB_ID, 0))
        self._unbound.discard(pod.name)
        if manifest["status"].get("phase") == "Running" or kind == "DELETED":
            self._not_running.discard(pod.name)
        if kind == "DELETED":
            del self._pods[pod.name]
        self._news.set()

    async def _until_none(self, left: set[str] | dict[str, Pod], what: str, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                while left:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Broken(f"{len(left)} Pods are not {what} after {within_s:g} s") from None


def pod_manifest(
    name: str, cpus: int, gpus: int = 0, *, scheduler: str = "slurm-scheduler", **metadata: Any
) -> Manifest:
    """Returns a Pod as a user writes it. `metadata` has further entries, like labels and annotations."""
    limits = {"cpu": str(cpus), "memory": f"{cpus}Gi", **({_GPU: str(gpus)} if gpus else {})}
    container = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    spec = {"schedulerName": scheduler, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name} | metadata, "spec": spec}


async def watch(
    session: aiohttp.ClientSession, query: Mapping[str, str], see: Callable[[str, Manifest], None]
) -> None:
    """Calls `see` with events of Pods until the watch ends. Raises Broken if the watch has expired."""
    asked = {"watch": "true", "timeoutSeconds": str(_LONGEST_S), **query}
    async with session.get(PODS, params=asked) as stream:
        async for line in stream.content:
            event = orjson.loads(line)
            if event.get("type", "ERROR") == "ERROR":  # if the type is missing, the watch was refused
                raise Broken(f"the watch of Pods: {event.get('object', event).get('message')}")
            see(event["type"], event["object"])


async def ask(
    session: aiohttp.ClientSession,
    method: str,
    path: str,
    body: Manifest | None = None,
    content: str = "application/json",
) -> Manifest:
    """Returns kube-apiserver's answer. `content` is the type of the body. Raises Broken for an error."""
    data, kind = orjson.dumps(body) if body else None, {"Content-Type": content}
    async with session.request(method, path, data=data, headers=kind) as answer:
        reply: Manifest = orjson.loads(await answer.read())
    if answer.status >= 400:
        raise Broken(f"{method} {path}: {reply.get('message')}")
    return reply


@asynccontextmanager
async def api_session(cluster: Cluster) -> AsyncIterator[aiohttp.ClientSession]:
    """Yields an HTTP session to kube-apiserver as the administrator."""
    try:
        async with administrator_session(cluster) as session:
            yield session
    finally:
        await asyncio.sleep(_CLOSING_S)  # TLS connections end shortly after their session
