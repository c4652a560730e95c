"""Runs a thousand Nodes of a pool in one process. The node agents decide and write as real agents do,
but share one watch of all Nodes and one watch of all Pods. Each Node has a real slurmd."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.chart import POOLS_NAMESPACE
from deploy.local.cluster import Cluster
from kubernetes_client.errors import Conflict, KubernetesError, NotFound
from kubernetes_client.protocol import Manifest
from kubernetes_client.rest import KubernetesRest
from kubernetes_client.watch import ResourceWatch
from node_agent.slurmd.manifest import Found, manifest
from node_agent.slurmd.step import Step, step
from slurm_client.errors import SlurmError
from tests.slurmd_pods.fleet import Fleet, Kubelet
from wellknown.names import DEVICE_PROBLEM
from wellknown.slurmd_pod import Assignment

_WORKERS = 32
_AGAIN_S = 0.5
"""Pause in seconds before an agent that waits checks its Node again."""


@dataclass
class _Seen:
    """The latest objects about one Node that kube-apiserver has sent."""

    node: Manifest | None = None
    slurmd: Manifest | None = None
    pull: Manifest | None = None


class Crowd(Fleet):
    """A fleet whose agents call kube-apiserver with the administrator's rights."""

    def __init__(self, cluster: Cluster, nodes: list[str]) -> None:
        super().__init__(cluster, nodes)
        self.begun = threading.Event()
        """Set as soon as every Node has the condition of a running agent, and the label of the pool."""

    def _give_tokens(self, folder: Path, stack: ExitStack) -> None:
        """Gives no tokens, because the agents act as the administrator."""

    def _parts(self, _: Path, administrator: KubernetesRest) -> Iterable[Coroutine[Any, Any, None]]:
        self._api = administrator
        self._known = {node: _Seen() for node in self.nodes}
        self._kubelets = {
            node: Kubelet(self, node, self._known[node], administrator) for node in self.nodes
        }
        queues: list[asyncio.Queue[str]] = [asyncio.Queue() for _ in range(_WORKERS)]
        self._due = {node: queues[number % _WORKERS] for number, node in enumerate(self.nodes)}
        """By Node: the queue of the worker that runs the Node's agent. All steps of a Node run in the
        same worker."""
        self._queued: set[str] = set()
        self._revisions: dict[str, Manifest] = {}
        return [self._follow_nodes(), self._follow_pods(), *map(self._work, queues)]

    async def native_jobs(self) -> dict[str, list[str]]:
        """Returns the native jobs that were last read, without another query. The stand-ins need the
        jobs only for drained nodes, and each query costs CPU."""
        return self._native

    async def _watch_native_jobs(self) -> None:
        while True:
            self._native = await super().native_jobs()
            await asyncio.sleep(_AGAIN_S)

    async def _follow_nodes(self) -> None:
        watch = ResourceWatch(self._api, "nodes")
        for each in await watch.list():
            await self._begin(each)
        self.begun.set()
        async for change in watch.changes():
            name = change.manifest["metadata"]["name"]
            if name in self._known:
                self._known[name].node = change.manifest
                self._look_at(name)

    async def _begin(self, node: Manifest) -> None:
        """Gives a Node the condition of a running agent, and the label of the pool."""
        name = node["metadata"]["name"]
        if name in self._known:
            agent = {"type": DEVICE_PROBLEM, "status": "False", "reason": "DevicesUsable", "message": ""}
            await self._api.patch_node_status(name, {"status": {"conditions": [agent]}})
            await self._api.patch_node(name, {"metadata": {"labels": {"pool": "yes"}}})

    async def _follow_pods(self) -> None:
        watch = ResourceWatch(self._api, "pods", f"metadata.namespace={POOLS_NAMESPACE}")
        await watch.list()
        async for change in watch.changes():
            name = change.manifest["spec"]["nodeName"]
            self._known[name].slurmd = None if change.gone else change.manifest
            self._look_at(name)

    def _look_at(self, node: str) -> None:
        if node not in self._queued:
            self._queued.add(node)
            self._due[node].put_nowait(node)

    async def _work(self, due: asyncio.Queue[str]) -> None:
        while True:
            node = await due.get()
            self._queued.discard(node)
            with suppress(KubernetesError, SlurmError):
                await self._agent(node)
                await self._kubelets[node].look()

    async def _agent(self, node: str) -> None:
        """Does one step of the Node's agent, as node_agent/slurmd/runner.py does."""
        seen = self._known[node]
        if seen.node is None:
            return
        assigned = Assignment.on(seen.node["metadata"].get("annotations") or {})
        pod = seen.slurmd
        match step(assigned, pod, self._native.get(node, [])):
            case Step.MAKE:
                assert assigned is not None
                await self._make(seen.node, assigned)
            case Step.END:
                assert pod is not None
                metadata = pod["metadata"]
                grace_s = pod["spec"]["terminationGracePeriodSeconds"]
                with suppress(Conflict, NotFound):
                    uid = {"uid": metadata["uid"]}
                    await self._api.delete_pod(POOLS_NAMESPACE, metadata["name"], uid, grace_s)
        if pod is not None and (self._native.get(node) or "deletionTimestamp" in pod["metadata"]):
            asyncio.get_running_loop().call_later(_AGAIN_S, self._look_at, node)

    async def _make(self, node: Manifest, assigned: Assignment) -> None:
        name = assigned.revision
        if name not in self._revisions:
            revision = await self._api.read_revision(POOLS_NAMESPACE, name)
            assert revision is not None
            self._revisions[name] = revision
        found = Found(node, node["metadata"]["name"])
        pod = manifest(assigned, self._revisions[name]["data"], found, POOLS_NAMESPACE)
        with suppress(Conflict):
            await self._api.create_pod(POOLS_NAMESPACE, pod)
