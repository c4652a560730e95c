"""Pods as a user sees them: created, watched and deleted through the API server."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import aiohttp
import yaml

from deploy.local.cluster import Cluster
from deploy.local.errors import NotObserved

Manifest = Mapping[str, Any]
Result = TypeVar("Result")

JOB_ID: Final = "slurm-extender.io/job-id"
CONDITION: Final = "slurm-extender.io/Placeholder"
GPU: Final = "nvidia.com/gpu"

_PODS: Final = "/api/v1/namespaces/default/pods"
_EVENTS: Final = "/api/v1/namespaces/default/events"
_LONGEST_S: Final = 3600


@dataclass(slots=True)
class Sighting:
    """The newest version of one Pod. Times are of `time.perf_counter`, in seconds."""

    name: str
    cpus: int
    gpus: int
    created: float
    """Time just before the create call."""
    bound: float | None = None
    """Time when the watch delivered the first version with a Node."""
    gone: bool = False
    waited_for: str | None = None
    """The last pending reason of the Pod."""
    manifest: Manifest | None = None

    @property
    def node(self) -> str | None:
        found = self._read("spec", "nodeName")
        return str(found) if found else None

    @property
    def job_id(self) -> int | None:
        found = self._read("metadata", "annotations", JOB_ID)
        return int(found) if found else None

    @property
    def reason(self) -> str | None:
        """The pending reason in the extender's condition on the Pod. None if the Pod does not wait."""
        conditions: list[Manifest] = self._read("status", "conditions") or []
        waits = (c["reason"] for c in conditions if c["type"] == CONDITION and c["status"] == "False")
        return None if self.node or self.gone else next(waits, None)

    @property
    def state(self) -> str:
        """The state of the Pod: waiting, bound, running, ending or gone."""
        if self.gone:
            return "gone"
        if self._read("metadata", "deletionTimestamp"):
            return "ending"
        if self.node is None:
            return "waiting"
        return "running" if self._read("status", "phase") == "Running" else "bound"

    @property
    def holds_node(self) -> bool:
        """True if the Pod is bound and not being deleted."""
        return self.state in {"bound", "running"}

    @property
    def bound_ms(self) -> float | None:
        """Time from just before the create call until the watch showed the binding."""
        return None if self.bound is None else (self.bound - self.created) * 1000

    def _read(self, *path: str) -> Any:
        found: Any = self.manifest
        for key in path:
            found = (found or {}).get(key)
        return found


def pod_manifest(name: str, cpus: int, gpus: int) -> dict[str, Any]:
    """Returns the manifest of a Pod for the extender's scheduler. Everything else is as in a common
    Pod."""
    limits = {"cpu": str(cpus), "memory": f"{cpus}Gi", **({GPU: str(gpus)} if gpus else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "slurm-scheduler",
            "containers": [{"name": "main", "image": "busybox", "resources": {"limits": limits}}],
        },
    }


class Pods:
    """The Pods that the demo creates, in order of creation. A watch of the demo keeps them current."""

    def __init__(self, session: aiohttp.ClientSession, on_news: Callable[[Sighting], None]) -> None:
        self._session = session
        self._on_news = on_news
        self._news = asyncio.Event()
        self._seen: dict[str, Sighting] = {}

    @classmethod
    @asynccontextmanager
    async def of(cls, cluster: Cluster, on_news: Callable[[Sighting], None]) -> AsyncIterator["Pods"]:
        """Watches until the end of the block. If the watch fails, the block ends with the watch's
        error."""
        async with administrator_session(cluster) as session, asyncio.TaskGroup() as tasks:
            pods = cls(session, on_news)
            watch = tasks.create_task(pods._watch(await pods._version()))
            try:
                yield pods
            finally:
                watch.cancel()

    def __iter__(self) -> Iterator[Sighting]:
        return iter(self._seen.values())

    @property
    def waiting(self) -> list[Sighting]:
        return [pod for pod in self if pod.state == "waiting"]

    @property
    def running(self) -> list[Sighting]:
        """The Pods that hold a Node."""
        return [pod for pod in self if pod.holds_node]

    async def create(self, name: str, cpus: int, gpus: int = 0) -> Sighting:
        """Creates a Pod. The measured time until the binding (`Sighting.bound_ms`) begins just before
        the create call."""
        manifest = pod_manifest(name, cpus, gpus)
        pod = self._seen[name] = Sighting(name, cpus, gpus, time.perf_counter())
        await self._ask("POST", _PODS, json=manifest)
        return pod

    async def delete(self, pod: Sighting) -> None:
        """Deletes a Pod, with the Pod's grace period."""
        await self._ask("DELETE", f"{_PODS}/{pod.name}")

    async def events(self, pod: Sighting) -> dict[str, str]:
        """Returns the Events about a Pod: reason -> message."""
        about = {"fieldSelector": f"involvedObject.name={pod.name}"}
        listed = await self._ask("GET", _EVENTS, params=about)
        return {event["reason"]: event["message"] for event in listed["items"]}

    async def until(self, see: Callable[[], Result | None], what: str, within_s: float = 20.0) -> Result:
        """Calls `see` after each change of a Pod, and returns the first true result. Raises NotObserved
        after the timeout."""
        try:
            async with asyncio.timeout(within_s):
                while not (seen := see()):
                    await self._news.wait()
        except TimeoutError:
            raise NotObserved(f"{what}: not within {within_s:.0f} s") from None
        return seen

    async def _version(self) -> str:
        """Returns the resourceVersion at which the watch begins. The request also leaves a connection
        open for the first create call."""
        listed = await self._ask("GET", _PODS)
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> None:
        asked = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(_LONGEST_S)}
        async with self._session.get(_PODS, params=asked) as stream:
            async for line in stream.content:
                self._observe(json.loads(line), time.perf_counter())
        raise ConnectionError("the API server ended the watch of Pods")

    def _observe(self, event: Manifest, now: float) -> None:
        manifest = event["object"]
        pod = self._seen.get(manifest.get("metadata", {}).get("name"))
        if pod is None:
            return
        pod.manifest, pod.gone = manifest, event["type"] == "DELETED"
        pod.waited_for = pod.reason or pod.waited_for
        if pod.bound is None and pod.node is not None:
            pod.bound = now
        self._on_news(pod)
        self._news, news = asyncio.Event(), self._news
        news.set()

    async def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            async with self._session.request(method, path, **options) as answer:
                body: dict[str, Any] = json.loads(await answer.read())
        except aiohttp.ClientError as error:
            raise NotObserved(f"{method} {path}: {error}") from error
        if answer.status >= 400:
            raise NotObserved(f"{method} {path}: {body.get('message')}")
        return body


def administrator_session(cluster: Cluster) -> aiohttp.ClientSession:
    """Returns an HTTP session to the API server as the administrator. The caller closes the session."""
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    certificate = kubeconfig["clusters"][0]["cluster"]["certificate-authority"]
    return aiohttp.ClientSession(
        cluster.api_server_url,
        headers={"Authorization": f"Bearer {kubeconfig['users'][0]['user']['token']}"},
        connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=certificate)),
        timeout=aiohttp.ClientTimeout(sock_connect=5),
    )
