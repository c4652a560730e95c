"""Keeps what is free for unmanaged Pods: Slurm's nodes by asking, the Pods bound to them by watch.

It runs on every replica. The Pods are watched; Slurm's nodes (not its jobs: their number does not
matter) are read at the start, and then every second or so while such Pods ask or wait. /filter answers
from memory; /bind has the one node read that it is about. A Pod that was refused is touched when room
appears, since the end of a native job is no event in Kubernetes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Any

import structlog

from extender.health import Health
from extender.kubernetes_api import KubernetesApi, KubernetesError, Manifest
from extender.placement.adoption import Guest, guest_of
from extender.placement.cluster import ClusterView
from extender.placement.occupancy import (
    Amounts,
    Occupancy,
    Refused,
    exempt,
    open_to_pods,
    placeholder_of,
    requested,
)
from extender.placement.workload import DOMAIN, Allocation, Dialect
from extender.resource_watch import ResourceWatch
from slurm_client.errors import SlurmError
from slurm_client.model import Node as SlurmNode
from slurm_client.protocol import Slurm

# Constant texts: kube-scheduler takes a changed message for news and tries again at once.
FULL = "Slurm's jobs leave too little room on this Node"
UNKNOWN = "Slurm's allocations are not known yet"
TAKEN = "Pods that Slurm does not count have the room that it allocated"
LEAVING = "Pods that are leaving this Node still have what Slurm gave to this one"
ROOM_SEEN = DOMAIN + "room-seen"
"""The annotation whose change wakes a refused Pod in kube-scheduler's queue."""
RUNNING = "status.phase!=Succeeded,status.phase!=Failed"

_INTERVAL_S = 1.0
_SHARE = 10  # a reading that takes long is followed by ten times as long a pause
_IDLE_S = 60.0
_ASKS_AGAIN_S = 360.0  # kube-scheduler looks at every Pod that waits at least every five minutes
_FAILURES = 3
_MOST_TAKEN = 1000

log = structlog.get_logger()


class OccupancyView:
    """`enabled` is False where unmanaged Pods are nobody's business here."""

    def __init__(
        self,
        kubernetes: KubernetesApi,
        slurm: Slurm,
        dialect: Dialect,
        health: Health,
        view: Callable[[], ClusterView],
        *,
        enabled: bool = True,
    ) -> None:
        # Of Pods that name our scheduler, those out of scope are unmanaged too.
        named = f"spec.schedulerName!={dialect.scheduler_name}," if dialect.scope.everything else ""
        others = f"spec.nodeName!=,{named}{RUNNING}"
        self._watch = ResourceWatch(
            kubernetes, "pods", others, lambda trouble: health.says("watch of unmanaged Pods", trouble)
        )
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._dialect = dialect
        self._health = health
        self._view = view
        self._enabled = enabled
        self._occupancy = Occupancy()
        self._asked = asyncio.Event()
        self._asked.set()  # one reading at the start, so that the first Pod need not wait for it
        self._asked_at = -inf
        self._failures = _FAILURES  # in a row; nothing is known before the first success
        self._pods_known = False
        self._slurms_nodes: Collection[str] = ()
        """The Nodes that stand for Slurm's, as last read."""
        self._taken: dict[str, int] = {}
        self.guests: dict[str, Guest] = {}
        """The Pods on Nodes that are to have a job, by uid; none where none are adopted."""
        self.guests_changed = asyncio.Event()
        """Set at every change of them."""

    # What the verbs ask

    def concerns(self, manifest: Manifest) -> bool:
        """Tells whether a Pod that is not ours may only use what Slurm leaves."""
        return self._enabled and not exempt(manifest)

    def closed(self, manifest: Manifest, names: Sequence[str]) -> dict[str, str]:
        """Returns the Nodes that a Pod that is not ours may not use now, and why. Waits for nothing."""
        if not self.concerns(manifest):
            return {}
        self._asked_at = asyncio.get_running_loop().time()
        self._asked.set()
        if self.known:
            asked = requested(manifest, self._dialect)
            closed = dict.fromkeys(self._occupancy.closed(asked, names), FULL)
        else:
            asked = Amounts()  # it is told when more is known, whether it fits then or not
            closed = dict.fromkeys(self._slurms(names), UNKNOWN)
        self._note(manifest, asked, refused=len(closed) == len(names))
        return closed

    async def read_node(self, name: str) -> SlurmNode | None:
        """Reads the Slurm node that a Node stands for, with all that is so when it is called; None where
        Slurm has none. /filter knows it from then on. Raises SlurmError."""
        own = self._view().nodes.get(name)
        if own is None and self._view().nodes:
            return None
        node = await self._slurm.node(own.slurm_name if own is not None else name)
        if node is not None:
            self._occupancy.node_seen(name, open_to_pods(node, self._dialect))
        return node

    def closed_to_ours(self, uid: str, allocation: Allocation) -> str | None:
        """Returns why a Pod of ours cannot use its allocation, where /bind found that out."""
        return TAKEN if self._taken.get(uid) == allocation.job_id else None

    def allocation_taken(self, uid: str, job_id: int) -> None:
        """Takes that what a job allocated was used by others already, so that /filter says so."""
        if len(self._taken) >= _MOST_TAKEN:
            self._taken.pop(next(iter(self._taken)))
        self._taken[uid] = job_id

    def may_have_guests(self, node: str) -> bool:
        """Tells whether unmanaged Pods may be on a Node, by the watch."""
        return self._enabled and (not self._pods_known or self._occupancy.has_guests(node))

    def is_slurms(self, node: str) -> bool:
        """Tells whether Slurm has a Node, by the last that was seen of it; yes, if nothing was."""
        return bool(self._slurms([node]))

    @property
    def known(self) -> bool:
        """Tells whether Slurm's nodes and the Pods on them are known, and Slurm has answered of late."""
        return self._pods_known and self._failures < _FAILURES

    # Behind them

    async def run(self) -> None:
        """Follows both systems for ever."""
        if not self._enabled:
            await asyncio.Event().wait()
        for manifest in await self._list_until_answered():
            self._take(manifest)
        self._pods_known = True
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_pods())
            tasks.create_task(self._follow_slurm())

    async def _follow_pods(self) -> None:
        async for change in self._watch.changes():
            if change.gone:
                self._leave(change.manifest["metadata"]["uid"])
            else:
                self._take(change.manifest)

    async def _list_until_answered(self) -> tuple[Manifest, ...]:
        while True:
            try:
                return await self._watch.list()
            except KubernetesError as error:
                self._health.says("watch of unmanaged Pods", str(error))
                await asyncio.sleep(_INTERVAL_S)

    def _take(self, manifest: Manifest) -> None:
        """An annotated Pod that another scheduler bound before its job was there counts as unmanaged."""
        uid, node = manifest["metadata"]["uid"], manifest["spec"]["nodeName"]
        if placeholder_of(manifest, self._dialect) is None:
            asked = requested(manifest, self._dialect)
            self._occupancy.pod_seen(uid, node, asked, exempt=exempt(manifest))
        else:
            self._occupancy.pod_gone(uid)  # Slurm counts it
        if self._dialect.adopts:
            self._host(uid, guest_of(manifest, self._dialect))

    def _leave(self, uid: str) -> None:
        self._occupancy.pod_gone(uid)
        self._host(uid, None)

    def _host(self, uid: str, guest: Guest | None) -> None:
        before = self.guests.get(uid)
        if guest == before:
            return
        self.guests_changed.set()
        if guest is None:
            del self.guests[uid]
        else:
            self.guests[uid] = guest

    async def _follow_slurm(self) -> None:
        while True:
            await self._asked.wait()
            pause = await self._read_and_wake()
            now = asyncio.get_running_loop().time()
            waits = self._occupancy.forget_before(now - _ASKS_AGAIN_S)
            if not waits and now - self._asked_at > _IDLE_S:
                self._asked.clear()
            await asyncio.sleep(pause)

    async def _read_and_wake(self) -> float:
        """Returns how long to wait until the next time."""
        start = asyncio.get_running_loop().time()
        try:
            await self.read()
        except SlurmError:
            return _INTERVAL_S
        took = asyncio.get_running_loop().time() - start
        await self._wake()
        return max(_INTERVAL_S, _SHARE * took)

    async def read(self) -> None:
        """Reads all of Slurm's nodes. Raises SlurmError."""
        try:
            nodes = await self._slurm.nodes()
        except SlurmError as error:
            self._failures += 1
            self._health.says("Slurm's nodes", str(error))
            raise
        left = await asyncio.to_thread(_left, nodes, self._view(), self._dialect)
        self._slurms_nodes = left.keys()
        self._occupancy.slurm_seen(left, after_outage=self._failures >= _FAILURES)
        self._failures = 0
        self._health.says("Slurm's nodes", None)

    async def _wake(self) -> None:
        """Touches the Pods that were refused and may fit by now; they ask again at once."""
        if not self.known:
            return
        for pod in self._occupancy.take_those_with_room():
            stamp = {ROOM_SEEN: datetime.now(UTC).isoformat()}
            patch: dict[str, Any] = {"metadata": {"uid": pod.uid, "annotations": stamp}}
            try:
                await self._kubernetes.patch_pod(pod.namespace, pod.name, patch)
            except KubernetesError as error:  # gone, mostly; kube-scheduler looks again in five minutes
                log.info("a Pod that waits was not touched", uid=pod.uid, error=str(error))

    def _note(self, manifest: Manifest, asked: Amounts, *, refused: bool) -> None:
        metadata = manifest["metadata"]
        uid = metadata.get("uid") or ""
        if not refused:
            self._occupancy.forget(uid)
            return
        namespace, name = metadata.get("namespace") or "default", metadata.get("name") or ""
        priority = manifest["spec"].get("priority") or 0
        self._occupancy.remember(Refused(uid, namespace, name, priority, asked, self._asked_at))

    def _slurms(self, names: Sequence[str]) -> Sequence[str]:
        """Returns the Nodes that Slurm has, by the last that was seen of it; all, if nothing was."""
        if self._slurms_nodes:
            return [name for name in names if name in self._slurms_nodes]
        view = self._view()
        known = {node for partition in view.partitions.values() for node in partition.nodes}
        own = {node.name: node.slurm_name for node in view.nodes.values()}
        return [name for name in names if not known or own.get(name, name) in known]


def _left(nodes: Sequence[SlurmNode], view: ClusterView, dialect: Dialect) -> dict[str, Amounts]:
    """What Slurm's nodes have left for unmanaged Pods, by the Nodes that stand for them."""
    names = {node.slurm_name: node.name for node in view.nodes.values()}
    return {
        names.get(node.name, node.name): open_to_pods(node, dialect)
        for node in nodes
        if node.name in names or not names
    }
