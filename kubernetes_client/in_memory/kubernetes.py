"""Implements `protocol.Kubernetes` over a `Store`, with the calls, the errors and the watches of
kube-apiserver."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any, Final

from kubernetes_client.errors import Conflict, Rejected, Unavailable
from kubernetes_client.in_memory.controls import Controls
from kubernetes_client.in_memory.patches import merged
from kubernetes_client.in_memory.selectors import selects
from kubernetes_client.in_memory.store import Store
from kubernetes_client.in_memory.watches import Watch, line
from kubernetes_client.protocol import Manifest, Right
from kubernetes_client.trust import trusting

_CONFIGURATIONS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_KINDS: Final = {
    "v1": ("configmaps", "events", "namespaces", "nodes", "pods", "secrets"),
    "admissionregistration.k8s.io/v1": (*_CONFIGURATIONS, "validatingadmissionpolicies"),
    "apps/v1": ("controllerrevisions",),
}
"""The served kinds, by the version of their group."""


class InMemoryKubernetes(Controls):
    """A kube-apiserver with the namespace kube-system and these Pods, without a kubelet or a scheduler.

    `clock` gives UNIX seconds. Lists come in pages of `page` objects. `account` makes the calls and has
    all rights except `lacking` (of Controls).
    """

    def __init__(
        self,
        *pods: Manifest,
        clock: Callable[[], float] = time.time,
        page: int = 250,
        unserved: Collection[str] = (),
        cluster_uid: str = "cluster-1",
        version: str = "v1.37.2",
        account: Manifest = MappingProxyType({"username": "admin", "groups": ["system:masters"]}),
    ) -> None:
        super().__init__(Store(), clock)
        self._version = version
        self._account = account
        self._page = page
        self._unserved = unserved
        self.put("namespaces", {"metadata": {"name": "kube-system", "uid": cluster_uid}})
        self.put("pods", *pods)

    # Pods

    async def read_pod(self, namespace: str, name: str) -> Manifest | None:
        async with self._call("read_pod"):
            return self._store.find("pods", namespace, name)

    async def patch_pod(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        async with self._call("patch_pod"):
            return self._patch("pods", namespace, name, patch, "spec")

    async def patch_pod_status(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        async with self._call("patch_pod_status"):
            return self._patch("pods", namespace, name, patch, "status")

    async def delete_pod(self, namespace: str, name: str, preconditions: Manifest, grace_s: int) -> None:
        async with self._call("delete_pod"):
            pod = self._store.find("pods", namespace, name)
            if pod is None:
                return
            _hold_to(pod, preconditions)
            self._delete(pod, grace_s)

    async def bind_pod(self, namespace: str, name: str, node: str, metadata: Manifest) -> None:
        async with self._call("bind_pod"):
            pod = self._store.get("pods", namespace, name)
            _hold_to(pod, metadata)
            _check_bindable(pod)
            if annotations := metadata.get("annotations"):
                pod["metadata"]["annotations"] = pod["metadata"].get("annotations", {}) | annotations
            pod["spec"]["nodeName"] = node
            scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._stamp()}
            status = pod.get("status") or {}
            others = [each for each in status.get("conditions") or () if each["type"] != "PodScheduled"]
            pod["status"] = status | {"conditions": [*others, scheduled]}
            self._store.update("pods", pod)

    async def create_pod(self, namespace: str, pod: Manifest) -> Manifest:
        async with self._call("create_pod"):
            return self._create("pods", namespace, pod)

    async def create_event(self, namespace: str, event: Manifest) -> None:
        async with self._call("create_event"):
            with suppress(Conflict):
                self._create("events", namespace, event)

    async def read_pod_group(self, version: str, namespace: str, name: str) -> Manifest | None:
        async with self._call("read_pod_group"):
            found = self._store.find("podgroups", namespace, name)
            return found if found is not None and found["apiVersion"] == version else None

    # Nodes

    async def read_node(self, name: str) -> Manifest:
        async with self._call("read_node"):
            return self._store.get("nodes", "", name)

    async def patch_node(self, name: str, patch: Manifest) -> None:
        async with self._call("patch_node"):
            self._patch("nodes", "", name, patch, "spec")

    async def patch_node_status(self, name: str, patch: Manifest) -> None:
        async with self._call("patch_node_status"):
            self._patch("nodes", "", name, patch, "status")

    async def cluster_uid(self) -> str:
        async with self._call("cluster_uid"):
            return str(self._store.get("namespaces", "", "kube-system")["metadata"]["uid"])

    # ControllerRevisions

    async def read_revision(self, namespace: str, name: str) -> Manifest | None:
        async with self._call("read_revision"):
            return self._store.find("controllerrevisions", namespace, name)

    async def revisions(self, namespace: str) -> Sequence[Manifest]:
        async with self._call("revisions"):
            found = self._store.all("controllerrevisions")
            return [each for each in found if each["metadata"]["namespace"] == namespace]

    async def create_revision(self, namespace: str, revision: Manifest) -> None:
        async with self._call("create_revision"):
            with suppress(Conflict):
                self._create("controllerrevisions", namespace, revision)

    async def delete_revision(self, namespace: str, name: str) -> None:
        async with self._call("delete_revision"):
            if self._store.find("controllerrevisions", namespace, name) is not None:
                self._store.remove("controllerrevisions", namespace, name)

    # Leases

    async def read_lease(self, namespace: str, name: str) -> Manifest | None:
        async with self._call("read_lease"):
            return self._store.find("leases", namespace, name)

    async def create_lease(self, namespace: str, lease: Manifest) -> Manifest:
        async with self._call("create_lease"):
            return self._create("leases", namespace, lease)

    async def replace_lease(self, namespace: str, name: str, lease: Manifest) -> Manifest:
        async with self._call("replace_lease"):
            if self._store.find("leases", namespace, name) is None:
                return self._create("leases", namespace, lease)
            return self._replace("leases", namespace, name, lease)

    # Secrets and ConfigMaps

    async def read_secret(self, namespace: str, name: str) -> Manifest | None:
        async with self._call("read_secret"):
            return self._store.find("secrets", namespace, name)

    async def write_secret(self, secret: Manifest) -> None:
        async with self._call("write_secret"):
            self._write_of("secrets", secret)

    async def read_config_map(self, namespace: str, name: str) -> Manifest | None:
        async with self._call("read_config_map"):
            return self._store.find("configmaps", namespace, name)

    async def write_config_map(self, config_map: Manifest) -> None:
        async with self._call("write_config_map"):
            self._write_of("configmaps", config_map)

    def _write_of(self, kind: str, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        if "resourceVersion" in metadata:
            self._replace(kind, metadata["namespace"], metadata["name"], manifest)
        else:
            self._create(kind, metadata["namespace"], manifest)

    # Webhooks and Services

    async def trust(self, configuration: str, ca: bytes) -> None:
        async with self._call("trust"):
            for kind in _CONFIGURATIONS:
                found = self._store.find(kind, "", configuration)
                patch = found and trusting(found.get("webhooks") or (), ca)
                if found and patch:
                    self._store.update(kind, merged(found, patch))

    async def call_service(self, namespace: str, service: str, port: int, path: str) -> int:
        async with self._call("call_service", f"{namespace}/{service}{path}"):
            found = self._store.get("services", namespace, service)
            if all(each["port"] != port for each in found["spec"]["ports"]):
                raise Unavailable(503, f'no service port {port} found for service "{service}"')
            if (namespace, service) not in self.answering:
                raise Unavailable(503, f'no endpoints available for service "{service}"')
            return self.answering[namespace, service]

    # The server, and the calling account

    async def version(self) -> str:
        async with self._call("version"):
            return self._version

    async def kinds(self, group_version: str) -> frozenset[str]:
        async with self._call("kinds", group_version):
            return frozenset(_KINDS.get(group_version, ())).difference(self._unserved)

    async def account(self) -> Manifest:
        async with self._call("account"):
            return self._account

    async def denied(self, asked: Iterable[Right]) -> tuple[Right, ...]:
        async with self._call("denied"):
            return tuple(right for right in asked if right in self.lacking)

    # Lists and watches

    async def serves(self, kind: str) -> bool:
        async with self._call("serves", kind):
            return kind not in self._unserved

    async def list(self, kind: str, field_selector: str | None) -> Manifest:
        async with self._call("list", kind):
            return self._listed(kind, field_selector)

    async def pages(self, kind: str, field_selector: str | None) -> AsyncIterator[Manifest]:
        """Yields pages. All pages show the state at the first page, and no page expires."""
        async with self._call("pages", kind):
            whole = self._listed(kind, field_selector)
        items, metadata = whole["items"], whole["metadata"]
        for start in range(0, len(items) or 1, self._page):
            if start:
                async with self._call("pages", kind):
                    pass
            yield {"metadata": metadata, "items": items[start : start + self._page]}

    async def latest_version(self, kind: str) -> str:
        async with self._call("latest_version", kind):
            return str(self._store.version)

    @asynccontextmanager
    async def watch(
        self, kind: str, field_selector: str | None, resource_version: str, seconds: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._call("watch", kind):
            watch = Watch(self._store, kind, selects(field_selector), resource_version)
        if watch.expired(self._compacted):
            yield self._expired()
            return
        self._watches.append(watch)
        try:
            yield self._pieces(kind, watch, seconds)
        finally:
            self._watches.remove(watch)

    async def aclose(self) -> None:
        """Closes nothing: the object may be used again, as a server outlives a client."""

    def _create(self, kind: str, namespace: str, manifest: Manifest) -> dict[str, Any]:
        metadata = {**manifest["metadata"], "namespace": namespace}
        return self._store.create(kind, {**manifest, "metadata": metadata})

    def _replace(self, kind: str, namespace: str, name: str, manifest: Manifest) -> dict[str, Any]:
        before = self._store.get(kind, namespace, name)
        _hold_to(before, manifest["metadata"])
        own = {"namespace": namespace, "name": name, "uid": before["metadata"]["uid"]}
        return self._store.update(kind, {**manifest, "metadata": {**manifest["metadata"], **own}})

    def _patch(self, kind: str, namespace: str, name: str, patch: Manifest, part: str) -> dict[str, Any]:
        """Merges the metadata, and either `spec` or `status`. In the API, the other part has another
        path."""
        before = self._store.get(kind, namespace, name)
        metadata = patch.get("metadata") or {}
        _hold_to(before, metadata)
        after = before | {"metadata": merged(before["metadata"], metadata)}
        if part in patch:
            after[part] = merged(before.get(part) or {}, patch[part])
        if kind == "pods":
            _check_spec(before, after)
        return self._store.update(kind, after)

    def _listed(self, kind: str, field_selector: str | None) -> dict[str, Any]:
        fits = selects(field_selector)
        items = [_item(found) for found in self._store.all(kind) if fits(found)]
        return {"metadata": {"resourceVersion": str(self._store.version)}, "items": items}

    async def _pieces(self, kind: str, watch: Watch, seconds: float) -> AsyncIterator[bytes]:
        """Yields the events of a watch. Waits for `Store.changed`, because every write and every control
        of watches sets this event."""
        clock = asyncio.get_running_loop().time
        ends = clock() + seconds
        while not watch.ended:
            self._raise_outage("", "watch", f"watch {kind}")
            changed = self._store.changed
            if piece := watch.news():
                yield piece
                continue
            try:
                await self._wait(watch, changed, ends - clock())
            except TimeoutError:
                yield watch.bookmark()
                return

    async def _wait(self, watch: Watch, changed: asyncio.Event, seconds: float) -> None:
        watch.waits = True
        self._one_waits.set()
        async with asyncio.timeout(seconds):  # wait_for may lose a cancellation
            await changed.wait()
        watch.waits = False

    async def _expired(self) -> AsyncIterator[bytes]:
        status = {"kind": "Status", "code": 410, "message": "too old resource version"}
        yield line("ERROR", status)


def _hold_to(found: Manifest, preconditions: Manifest) -> None:
    for field in ("uid", "resourceVersion"):
        if field in preconditions and preconditions[field] != found["metadata"][field]:
            raise Conflict(409, f"the object has been modified: {field} is {found['metadata'][field]}")


def _check_bindable(pod: Manifest) -> None:
    name, spec = pod["metadata"]["name"], pod["spec"]
    if pod["metadata"].get("deletionTimestamp"):
        raise Conflict(409, f"pod {name} is being deleted, cannot be assigned to a host")
    if node := spec.get("nodeName"):
        raise Conflict(409, f'pod {name} is already assigned to node "{node}"')
    if spec.get("schedulingGates"):
        raise Conflict(409, f"pod {name} has non-empty .spec.schedulingGates")


def _check_spec(before: Manifest, after: Manifest) -> None:
    """Raises Rejected if a patch changes a part of the spec that this project never changes."""
    old, new = dict(before["spec"]), dict(after["spec"])
    gates = old.pop("schedulingGates", ()), new.pop("schedulingGates", ())
    if old != new or any(gate not in gates[0] for gate in gates[1]):
        raise Rejected(422, "spec: Forbidden: pod updates may not change fields other than ...")


def _item(found: Manifest) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key not in ("apiVersion", "kind")}
