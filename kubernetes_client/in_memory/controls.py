"""Controls of an `InMemoryKubernetes` for tests: actions of users, administrators and kubelets, and
failures."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from inspect import isawaitable
from typing import Any, Final

from kubernetes_client.errors import KubernetesError, Unavailable
from kubernetes_client.in_memory.patches import merged
from kubernetes_client.in_memory.store import Store
from kubernetes_client.in_memory.watches import Watch
from kubernetes_client.protocol import Manifest, Right

_NAMESPACED: Final = (
    *("pods", "events", "leases", "secrets", "configmaps", "controllerrevisions", "services"),
    *("persistentvolumeclaims", "resourceclaims"),
)
_ENDED: Final = ("Succeeded", "Failed")


class Controls:
    """The tests' controls of an `InMemoryKubernetes`. The controls also work during an `outage`.

    The name of a call is the name of its method ("patch_pod"). For `serves`, `list`, `pages`,
    `latest_version` and `watch`, the kind follows ("watch pods").
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._outages: dict[str, KubernetesError] = {}
        self._held: dict[str, asyncio.Event] = {}
        self._lose_reply_of: set[str] = set()
        self._meanwhile: dict[str, Callable[[], object]] = {}
        self._compacted = 0
        self._watches: list[Watch] = []
        self._one_waits = asyncio.Event()
        self.lacking: set[Right] = set()
        """Rights that the account lacks in the answer of `denied`. No call is rejected for a missing
        right."""
        self.answering: dict[tuple[str, str], int] = {}
        """Services (namespace and name) with a Pod, and the HTTP status of the Pod's replies."""
        self.calls: list[str] = []
        """Every call, in order."""

    # Failures

    def outage(self, error: KubernetesError | None, *calls: str) -> None:
        """Makes the named calls, or all calls, raise `error` until `outage(None)`. Also breaks off open
        watches."""
        if error is None:
            for call in calls or tuple(self._outages):
                self._outages.pop(call, None)
            return
        self._outages |= dict.fromkeys(calls or ("",), error)
        self._store.touch()

    def hold(self, *calls: str) -> None:
        """Makes the named calls, or all calls, wait before their work until `release` is called."""
        for call in calls or ("",):
            self._held.setdefault(call, asyncio.Event())

    def release(self) -> None:
        """Continues held calls, and holds no more calls."""
        for held in self._held.values():
            held.set()
        self._held = {}

    def lose_reply_of_next(self, call: str) -> None:
        """Makes the next such call do its work and raise Unavailable."""
        self._lose_reply_of.add(call)

    def before_next(self, call: str, meanwhile: Callable[[], object]) -> None:
        """Runs `meanwhile`, which may be a coroutine function, before the next such call."""
        self._meanwhile[call] = meanwhile

    def compact(self) -> None:
        """Makes watches expire that begin at a version before the current version."""
        self._compacted = self._store.version

    def bookmark(self) -> None:
        """Sends a bookmark to every open watch that was opened before the last change of its kind."""
        for watch in self._watches:
            watch.bookmark_due = True
        self._store.touch()

    def end_watches(self) -> None:
        """Ends every open watch, as at its timeout."""
        for watch in self._watches:
            watch.ended = True
        self._store.touch()

    # Users, administrators and kubelets.

    def put(self, kind: str, *manifests: Manifest) -> None:
        """Creates or replaces objects. A manifest with another uid replaces the object by a new object.
        The manifest's uid is kept. The manifest's resourceVersion is kept if newer than all versions."""
        for manifest in manifests:
            metadata = manifest["metadata"]
            namespace, name = metadata.get("namespace") or "", metadata["name"]
            before = self._store.find(kind, namespace, name)
            uid = metadata.get("uid")
            if before is not None and uid in (None, before["metadata"]["uid"]):
                own = {key: before["metadata"][key] for key in ("uid", "resourceVersion")}
                self._store.update(kind, {**manifest, "metadata": own | metadata})
                continue
            if before is not None:
                self._store.remove(kind, namespace, name)
            self._store.create(kind, manifest)

    def edit(self, kind: str, name: str, patch: Manifest, namespace: str = "default") -> None:
        """Merges a strategic merge patch into an object, including the status."""
        before = self._store.get(kind, _namespace(kind, namespace), name)
        self._store.update(kind, merged(before, patch))

    def remove(self, kind: str, name: str, namespace: str = "default") -> None:
        """Removes an object. A Pod is removed as by its kubelet, or as by force."""
        if kind == "pods":
            self._delete(self.read(kind, name, namespace), 0)
        else:
            self._store.remove(kind, _namespace(kind, namespace), name)

    def read(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """Returns the current version of an object. Raises NotFound."""
        return self._store.get(kind, _namespace(kind, namespace), name)

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """Returns all objects of a kind, by namespace and name."""
        return self._store.all(kind)

    def writes(self, kind: str) -> int:
        """Returns the number of writes to objects of a kind, by any writer."""
        return sum(change.kind == kind for change in self._store.changes)

    async def until(self, holds: Callable[[], object]) -> None:
        """Returns when `holds` is true. `holds` is evaluated after every write."""
        while not holds():
            await self._store.changed.wait()

    async def all_sent(self) -> None:
        """Returns as soon as a watch is open, all open watches have sent everything, and their readers
        wait again."""
        while not (self._watches and all(watch.idle for watch in self._watches)):
            self._one_waits.clear()
            await self._one_waits.wait()

    def _delete(self, pod: dict[str, Any], grace_s: int) -> None:
        """Deletes a Pod as rest.BeforeDelete and podStrategy.CheckGracefulDelete of Kubernetes do. First
        writes a version with the deletionTimestamp."""
        metadata, phase = pod["metadata"], (pod.get("status") or {}).get("phase")
        if not pod["spec"].get("nodeName") or phase in _ENDED:
            grace_s = 0
        began, before = self._clock(), metadata.get("deletionGracePeriodSeconds")
        if before is not None:
            if grace_s >= before:
                return
            began = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp() - before
        metadata["deletionTimestamp"] = self._stamp(began + grace_s)
        metadata["deletionGracePeriodSeconds"] = grace_s
        self._store.update("pods", pod)
        if grace_s == 0:
            self._store.remove("pods", metadata["namespace"], metadata["name"])

    def _stamp(self, at: float | None = None) -> str:
        when = datetime.fromtimestamp(self._clock() if at is None else at, UTC)
        return when.strftime("%Y-%m-%dT%H:%M:%SZ")

    @asynccontextmanager
    async def _call(self, method: str, kind: str = "") -> AsyncIterator[None]:
        """Context for the work of a call. Before the work, other tasks get a turn, as with any
        server."""
        call = f"{method} {kind}".strip()
        names = ("", method, call)
        self.calls.append(call)
        await asyncio.sleep(0)
        for name in names:
            if name in self._meanwhile and isawaitable(done := self._meanwhile.pop(name)()):
                await done
            if name in self._held:
                await self._held[name].wait()
        self._raise_outage(*names)
        yield
        for name in names:
            if name in self._lose_reply_of:
                self._lose_reply_of.remove(name)
                raise Unavailable(0, f"kube-apiserver broke off its answer: {call}")

    def _raise_outage(self, *names: str) -> None:
        for name in names:
            if name in self._outages:
                raise self._outages[name]


def _namespace(kind: str, namespace: str) -> str:
    return namespace if kind in _NAMESPACED else ""
