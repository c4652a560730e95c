"""The kube-apiservers of the contract tests, and changes of objects by other clients."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from deploy.local.cluster import Cluster
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.protocol import Kubernetes
from tests.administrator import Kubernetes as Administrator
from tests.builders import Manifest

PAGE = 2
"""Number of objects on each page of a list."""
_PATHS = {
    "nodes": "/api/v1/nodes",
    "mutatingwebhookconfigurations": (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    ),
    "leases": "/apis/coordination.k8s.io/v1/namespaces/default/leases",
}
_STAYS = {"local.slurm-extender.io/start-after": "3600", "local.slurm-extender.io/hangs": "yes"}
"""Annotations of a Pod that the simulated kubelet of a real cluster shall neither start nor end."""

# Numbers that make names unique. No number repeats in this run or in the next run of the tests.
_numbers = itertools.count(int(time.time()) % 1_000_000 * 100)


class Bench:
    """A kube-apiserver to test, a source of unused names, and other clients that create, change and
    remove objects."""

    kubernetes: Kubernetes
    serves_claims: bool
    """True if this release of kube-apiserver serves ResourceClaims."""
    short_s: int
    """Shortest duration, in seconds, of a watch that can end with a bookmark."""

    def __init__(self) -> None:
        self.scheduler = f"contract-{next(_numbers)}"
        """Name of a scheduler that does not run, for the Pods of one test."""

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        """Creates an object as another client, and returns the object."""
        raise NotImplementedError

    def edit(self, kind: str, name: str, patch: Manifest) -> Manifest:
        """Sends a merge patch as another client. Returns the changed object."""
        raise NotImplementedError

    def end(self, pod: str, phase: str) -> Manifest:
        """Sets the Pod's phase, as a kubelet does when the Pod has ended. Returns the Pod."""
        raise NotImplementedError

    def remove(self, kind: str, name: str) -> None:
        """Removes the object without a grace period."""
        raise NotImplementedError

    def read(self, kind: str, name: str) -> Manifest:
        raise NotImplementedError

    def too_old(self) -> str:
        """Returns a resourceVersion from which kube-apiserver cannot start a watch any more."""
        raise NotImplementedError

    @property
    def selector(self) -> str:
        """Field selector that selects the Pods of this test."""
        return f"spec.schedulerName={self.scheduler}"

    def name(self) -> str:
        return f"contract-{next(_numbers)}"

    def pod(
        self, name: str = "", node: str = "", gates: tuple[str, ...] = (), **metadata: Any
    ) -> Manifest:
        """Creates a Pod that no scheduler binds and no kubelet runs."""
        spec: Manifest = {
            "schedulerName": self.scheduler,
            "containers": [{"name": "c", "image": "none"}],
            "terminationGracePeriodSeconds": 30,
        }
        if node:
            spec["nodeName"] = node
            metadata["annotations"] = metadata.get("annotations", {}) | _STAYS
        if gates:
            spec["schedulingGates"] = [{"name": gate} for gate in gates]
        named = {"name": name or self.name(), "namespace": "default"} | metadata
        return self.create("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec})

    def node(self) -> Manifest:
        """Creates a Node."""
        metadata = {"name": self.name()}
        return self.create(
            "nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}}
        )

    async def events(
        self,
        since: str,
        count: int,
        selector: str = "",
        seconds: int = 10,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> list[Any]:
        """Returns the first `count` events of a watch of Pods, as pairs of the event's type and the
        object. Returns fewer events if the watch ends earlier. Calls `meanwhile` as soon as the watch is
        open."""
        events, rest = list[Any](), b""
        async with self.kubernetes.watch("pods", selector or self.selector, since, seconds) as pieces:
            meanwhile()
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                read = [orjson.loads(line) for line in lines]
                events += [(each["type"], each["object"]) for each in read]
                if len(events) >= count:
                    break
        return events[:count]


class InMemoryBench(Bench):
    """A bench with the in-memory kube-apiserver. Other clients change objects by its controls."""

    def __init__(self) -> None:
        super().__init__()
        self.controls = InMemoryKubernetes(page=PAGE)
        self.kubernetes, self.serves_claims, self.short_s = self.controls, True, 0

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        if kind in ("pods", "leases", "services"):
            manifest = manifest | {"metadata": {"namespace": "default"} | manifest["metadata"]}
        if kind == "pods":
            manifest = manifest | {"status": {"phase": "Pending"}}
        self.controls.put(kind, manifest)
        return self.read(kind, manifest["metadata"]["name"])

    def edit(self, kind: str, name: str, patch: Manifest) -> Manifest:
        self.controls.edit(kind, name, patch)
        return self.read(kind, name)

    def end(self, pod: str, phase: str) -> Manifest:
        return self.edit("pods", pod, {"status": {"phase": phase}})

    def remove(self, kind: str, name: str) -> None:
        self.controls.remove(kind, name)

    def read(self, kind: str, name: str) -> Manifest:
        return self.controls.read(kind, name)

    def too_old(self) -> str:
        version = self.pod()["metadata"]["resourceVersion"]
        self.pod()
        self.controls.compact()
        return str(version)


class RealBench(Bench):
    """A bench with a real kube-apiserver, called through the client under test. Other clients call
    kube-apiserver directly."""

    def __init__(self, kubernetes: Kubernetes, cluster: Cluster) -> None:
        super().__init__()
        self.kubernetes, self.short_s = kubernetes, 3  # the bookmark comes 2 s before the end
        self._cluster = cluster
        self._administrator = Administrator(cluster)
        self._created: list[tuple[str, str]] = []
        groups = self._administrator.ask("GET", "/apis")["groups"]
        self.serves_claims = any(group["name"] == "resource.k8s.io" for group in groups)

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        self._created.append((kind, manifest["metadata"]["name"]))
        return self._administrator.ask("POST", _path(kind), manifest)

    def edit(self, kind: str, name: str, patch: Manifest) -> Manifest:
        return self._administrator.ask("PATCH", f"{_path(kind)}/{name}", patch)

    def end(self, pod: str, phase: str) -> Manifest:
        status = {"status": {"phase": phase}}
        return self._administrator.ask("PATCH", f"{_path('pods')}/{pod}/status", status)

    def remove(self, kind: str, name: str) -> None:
        self._administrator.ask("DELETE", f"{_path(kind)}/{name}", {"gracePeriodSeconds": 0})

    def read(self, kind: str, name: str) -> Manifest:
        return self._administrator.ask("GET", f"{_path(kind)}/{name}")

    def too_old(self) -> str:
        """Restarts kube-apiserver. The new process knows the objects, but no events from before its
        start, so earlier versions are too old."""
        version = self.pod()["metadata"]["resourceVersion"]
        self.pod()
        self._cluster.kill("kube-apiserver")
        self._cluster.start("kube-apiserver")
        return str(version)

    def clear(self) -> None:
        """Removes all objects that the test has created."""
        there = {kind: set(self._names(kind)) for kind in {kind for kind, _ in self._created}}
        for kind, name in self._created:
            if name in there[kind]:
                self.remove(kind, name)
        self._administrator.close()

    def _names(self, kind: str) -> Iterator[str]:
        items = self._administrator.ask("GET", _path(kind))["items"]
        return (each["metadata"]["name"] for each in items)


def _path(kind: str) -> str:
    return _PATHS.get(kind) or f"/api/v1/namespaces/default/{kind}"


def conditions(manifest: Mapping[str, Any]) -> dict[str, Manifest]:
    """Returns the conditions of an object, by type."""
    return {each["type"]: each for each in (manifest.get("status") or {}).get("conditions") or ()}
