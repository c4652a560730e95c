"""Tracks how much capacity is free for unmanaged Pods, on every replica. To do so, this module reads
Slurm's nodes, and watches the Pods on the Nodes.

The extender reads Slurm's nodes at the start, and about every second while kube-scheduler tries
unmanaged Pods, or while such Pods wait. This module reads no jobs, so the number of jobs does not change
its load. /filter uses the nodes in memory; /bind reads one node from Slurm. When room appears for a
waiting Pod, the extender changes an annotation of the Pod, so that kube-scheduler tries the Pod again.
This change is necessary, because the end of a native job causes no event in Kubernetes.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from typing import Any, TypeVar

import structlog

from extender.kube_scheduler.deadline import slurm_in_time
from extender.node_view.pods_on_node import RUNNING
from extender.node_view.slurm_nodes import Reading, SlurmNodes
from extender.node_view.view import ClusterView
from extender.pod_request.translation import TranslationConfig
from extender.unmanaged.adoption import AdoptedPod, adoptable
from extender.unmanaged.capacity import (
    Amounts,
    Occupancy,
    UnschedulablePod,
    asks_uncounted_gpus,
    exempt,
    open_to_pods,
    placeholder_of,
    requested,
)
from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.watch import ResourceWatch
from service.health import Health, common_problem
from service.periodic import periodically
from slurm_client.errors import OUTAGE, SlurmError
from slurm_client.model import Node as SlurmNode
from slurm_client.protocol import Slurm
from wellknown.allocation import Allocation
from wellknown.log_fields import about
from wellknown.names import CAPACITY_FREED

# These texts are constant, because kube-scheduler retries a Pod at once if the message in the Pod's
# condition changes.
FULL = "Slurm's jobs leave too little room on this Node"
UNCOUNTED = "this Pod requests GPUs by a name that Slurm does not count (SLURM_EXTENDER_GRES)"
UNKNOWN = "Slurm's allocations are not known yet"
TAKEN = "Pods that Slurm does not count use the resources of this Pod's job"
LEAVING = "Pods that are leaving this Node still use the resources of this Pod's job"

_SILENT = (
    "Slurm has not answered since {} UTC; free capacity of its nodes is unknown; kube-scheduler retries"
    " the Pod"
)
_SILENT_PATTERN = re.compile(r"Slurm has not answered since (\d\d:\d\d) UTC", re.ASCII)

_INTERVAL_S = 1.0
_IDLE_S = 60.0
_ASKS_AGAIN_S = 360.0  # kube-scheduler tries each waiting Pod at least every five minutes
_FAILURES = 3
_FAILURE_S = 1.0  # this time without an answer counts as one failure
_PATIENCE_S = 2.0  # kube-scheduler schedules no Pod while /preempt waits
_MOST_TAKEN = 1000

log = structlog.get_logger()
Answer = TypeVar("Answer")


class FreeCapacity:
    """The free capacity for unmanaged Pods. `enabled` is False if the extender ignores unmanaged
    Pods."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        slurm: Slurm,
        slurm_nodes: SlurmNodes,
        translation: TranslationConfig,
        health: Health,
        view: Callable[[], ClusterView],
        *,
        enabled: bool = True,
    ) -> None:
        # Pods that name the extender's scheduler but are out of scope are unmanaged too.
        named = (
            f"spec.schedulerName!={translation.scheduler_name}," if translation.scope.everything else ""
        )
        others = f"spec.nodeName!=,{named}{RUNNING}"
        self._watch = ResourceWatch(
            kubernetes, "pods", others, lambda problem: health.says("watch of unmanaged Pods", problem)
        )
        self._kubernetes, self._slurm, self._slurm_nodes = kubernetes, slurm, slurm_nodes
        self._translation, self._health, self._view = translation, health, view
        self._enabled, self._occupancy = enabled, Occupancy()
        self._asked = asyncio.Event()
        self._asked.set()  # reads once at the start, so that the first Pod need not wait
        self._asked_at = -inf
        self._failures = _FAILURES  # consecutive failures; at the start, the free capacity is not known
        self._answered_at = datetime.min.replace(tzinfo=UTC)
        self._silent_since: datetime | None = None
        """Time since which Slurm does not answer: the start of the first request without an answer. None
        after each answer."""
        self.stale = False
        """True while the loop reads no nodes, because kube-scheduler has not asked for a long time."""
        self._last = Reading((), -inf, 0.0)
        self._node_seen_at = -inf  # time of the last read of a node by /bind
        self._pods_known = False
        self._unmanaged: set[str] = set()  # uids of unmanaged Pods on Nodes, including adopted Pods
        self._slurms_nodes: Collection[str] = ()  # the Nodes that name Slurm nodes, at the last read
        self._taken: dict[str, int] = {}
        self.adopted_pods: dict[str, AdoptedPod] = {}
        """The adopted Pods, by uid. Each adopted Pod is bound to a Node, and has a job or soon gets a
        job. Empty if the extender adopts no Pods."""
        self.adopted_pods_changed = asyncio.Event()  # set at every change of `adopted_pods`

    # Answers for the verbs (/filter, /bind, /preempt)

    def concerns(self, manifest: Manifest) -> bool:
        """Returns True if an unmanaged Pod may only use resources that Slurm's jobs leave."""
        return self._enabled and not exempt(manifest)

    def closed(self, manifest: Manifest, names: Sequence[str]) -> dict[str, str]:
        """Returns the Nodes that an unmanaged Pod may not use now, and why. Never waits."""
        if not self.concerns(manifest):
            return {}
        if asks_uncounted_gpus(manifest, self._translation):
            return dict.fromkeys(self._slurms(names), UNCOUNTED)
        self._note_question()
        if self.known:
            asked = requested(manifest, self._translation)
            closed = dict.fromkeys(self._occupancy.closed(asked, names), FULL)
            self._open_to_nominated(manifest, asked, closed)
        else:
            asked = Amounts()  # requests nothing, so that the Pod is tried again when more is known
            closed = dict.fromkeys(self._slurms(names), self.unknown(manifest))
        self._note(manifest, asked, unschedulable=len(closed) == len(names))
        return closed

    def not_known_yet(self, manifest: Manifest) -> str | None:
        """Returns the reason why the free capacity is unknown, if kube-scheduler itself has to retry the
        Pod. Otherwise returns None. kube-scheduler has to retry a Pod outside the extender's scope,
        because the extender changes no annotation of such a Pod."""
        if self.known or self._translation.scope.has(manifest["metadata"].get("namespace") or "default"):
            return None
        return self.unknown(manifest)

    async def open_without(
        self, manifest: Manifest, victims: Mapping[str, Collection[str]]
    ) -> list[str]:
        """Returns the Nodes that an unmanaged Pod may use after the eviction of the victims (Node ->
        uids). Nodes without a Slurm node are always in the result, because kube-scheduler decides about
        these Nodes. For Slurm's Nodes, two rules hold:

        - No managed Pod may be a victim. Slurm would give the resources to the next job of the queue, so
          Pod after Pod would be evicted in vain. An unknown Pod counts as managed. If the extender
          ignores unmanaged Pods, every Pod counts as managed.
        - A Pod for which `concerns` is True must fit after the eviction. The resources of an adopted
          Pod's job do not count as free, because these resources also go to Slurm's queue.

        Reads Slurm's nodes if the nodes were not read recently.
        """
        slurms = self._slurms_or_newer(victims)
        may = [node for node in slurms if self._unmanaged.issuperset(victims[node])]
        if may and self.concerns(manifest):
            self._note_question()
            await self._renew()
            known, asked = self.known and not self.stale, requested(manifest, self._translation)
            fits = self._occupancy.fits_without
            read = self._slurms_nodes if known else ()
            may = [node for node in may if node in read and fits(asked, node, victims[node])]
        forbidden = set(slurms).difference(may)
        return [node for node in victims if node not in forbidden]

    async def read_node(self, name: str) -> SlurmNode | None:
        """Reads the Slurm node of a Node, and also keeps the result for /filter. Returns None if Slurm
        has no such node. Raises SlurmError."""
        own = self._view().nodes.get(name)
        if own is None and self._view().nodes:
            return None
        named = own.slurm_name if own is not None else name
        node = await self.answered(slurm_in_time(self._slurm.node(named)))
        if node is not None:
            self._occupancy.node_seen(name, open_to_pods(node, self._translation))
            self._node_seen_at = asyncio.get_running_loop().time()
        return node

    async def answered(self, question: Awaitable[Answer]) -> Answer:
        """Returns Slurm's answer to a request. If Slurm does not answer, notes that an outage has begun.
        Raises SlurmError."""
        began, asked_at = asyncio.get_running_loop().time(), datetime.now(UTC)
        try:
            answer = await question
        except SlurmError as error:
            if common_problem(error) == OUTAGE:
                took = asyncio.get_running_loop().time() - began
                self._failures += int(took / _FAILURE_S)
                self._silent_since = self._silent_since or max(asked_at, self._answered_at)
                self._asked.set()  # the loop reads nodes, and so notices when Slurm answers again
            raise
        self._answered_at, self._silent_since = datetime.now(UTC), None
        return answer

    def unknown(self, manifest: Manifest) -> str:
        """Returns the reason why the free capacity is not known, for the condition of a Pod. During an
        outage of Slurm, the text for a Pod stays the same. If the Pod's condition already has the text
        with a time, the new text repeats this time, even if another replica wrote the condition."""
        if self._silent_since is None:
            return UNKNOWN
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        matches = (_SILENT_PATTERN.search(each.get("message") or "") for each in conditions)
        since = next((found[1] for found in matches if found), f"{self._silent_since:%H:%M}")
        return _SILENT.format(since)

    def closed_to_ours(self, uid: str, allocation: Allocation) -> str | None:
        """Returns the reason why a managed Pod cannot use its allocation, if /bind has noticed such a
        reason. Otherwise returns None."""
        return TAKEN if self._taken.get(uid) == allocation.job_id else None

    def allocation_taken(self, uid: str, job_id: int) -> None:
        """Notes for /filter that other Pods use the resources of a Pod's job."""
        if len(self._taken) >= _MOST_TAKEN:
            self._taken.pop(next(iter(self._taken)))
        self._taken[uid] = job_id

    def may_have_uncounted_pods(self, node: str) -> bool:
        """Returns True if Pods that Slurm does not count may be on a Node. Exempt Pods (`exempt`) are
        left out. The answer comes from the watch of Pods, and is True for each Node until all Pods are
        known. While `enabled` is False, the answer is always False."""
        return self._enabled and (not self._pods_known or self._occupancy.has_uncounted_pods(node))

    def is_slurms(self, node: str) -> bool:
        """Returns True if Slurm has a node for this Node, by the rules of `_slurms_or_newer`."""
        return bool(self._slurms_or_newer([node]))

    def was_read(self, node: str) -> bool:
        """Returns True if Slurm had a node for this Node at the last reading."""
        return node in self._slurms_nodes

    @property
    def known(self) -> bool:
        """True if Slurm's nodes and the Pods on these nodes are known, and Slurm has answered
        recently."""
        return self._pods_known and self._failures < _FAILURES

    # Behind the answers

    async def run(self) -> None:
        """Follows Slurm and Kubernetes for ever."""
        if not self._enabled:
            await asyncio.Event().wait()
        self.pods_listed(await self._list_until_answered())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_pods())
            act, retry = self._read_and_wake, _INTERVAL_S
            tasks.create_task(periodically(act, self._pause, outlives=SlurmError, retry=retry))

    async def _follow_pods(self) -> None:
        async for change in self._watch.changes():
            if change.gone:
                self.pod_gone(change.manifest["metadata"]["uid"])
            else:
                self.pod_seen(change.manifest)

    async def _list_until_answered(self) -> tuple[Manifest, ...]:
        while True:
            try:
                return await self._watch.list()
            except KubernetesError as error:
                self._health.says("watch of unmanaged Pods", error)
                await asyncio.sleep(_INTERVAL_S)

    def pods_listed(self, manifests: Iterable[Manifest]) -> None:
        """Takes the list of all Pods on Nodes at the start. `pod_seen` and `pod_gone` take the later
        changes."""
        for manifest in manifests:
            self.pod_seen(manifest)
        self._pods_known = True

    def pod_seen(self, manifest: Manifest) -> None:
        """Notes a Pod on a Node. A managed Pod without an allocation also takes free capacity. Another
        scheduler may have bound such a Pod before the Pod had a job."""
        metadata, node = manifest["metadata"], manifest["spec"]["nodeName"]
        uid = metadata["uid"]
        if self._translation.manages(manifest):
            self._unmanaged.discard(uid)
        else:
            self._unmanaged.add(uid)
        if placeholder_of(manifest, self._translation) is None:
            asked, leaving = requested(manifest, self._translation), "deletionTimestamp" in metadata
            self._occupancy.pod_seen(uid, node, asked, exempt=exempt(manifest), leaving=leaving)
        else:
            self._occupancy.pod_gone(uid)  # Slurm counts the Pod
        if self._translation.adopts:
            self._note_adopted(uid, adoptable(manifest, self._translation))

    def pod_gone(self, uid: str) -> None:
        self._unmanaged.discard(uid)
        self._occupancy.pod_gone(uid)
        self._note_adopted(uid, None)

    def _note_adopted(self, uid: str, adopted_pod: AdoptedPod | None) -> None:
        before = self.adopted_pods.get(uid)
        if adopted_pod == before:
            return
        self.adopted_pods_changed.set()
        if adopted_pod is None:
            del self.adopted_pods[uid]
        else:
            self.adopted_pods[uid] = adopted_pod

    async def _read_and_wake(self) -> None:
        await self._asked.wait()
        self._last = await self.read(_INTERVAL_S)
        await self._wake()

    async def _pause(self) -> None:
        now = asyncio.get_running_loop().time()
        waits = self._occupancy.forget_before(now - _ASKS_AGAIN_S)
        if not (waits or self._failures) and now - self._asked_at > _IDLE_S:
            self._asked.clear()
            self.stale = True
        await asyncio.sleep(self._last.pause(_INTERVAL_S))

    async def read(self, interval: float = 0.0) -> Reading:
        """Reads all of Slurm's nodes by `SlurmNodes.read`, and updates the free capacity. Raises
        SlurmError."""
        try:
            reading = await self.answered(self._slurm_nodes.read(interval, self._node_seen_at))
        except SlurmError as error:
            self._failures += 1
            self._health.says("Slurm's nodes", error)
            raise
        left = await asyncio.to_thread(_left, reading.nodes, self._view(), self._translation)
        self._slurms_nodes = left.keys()
        self._occupancy.slurm_seen(left, after_outage=self._failures >= _FAILURES)
        self._failures, self.stale = 0, False
        self._health.says("Slurm's nodes", None)
        return reading

    async def _renew(self) -> None:
        """Reads Slurm's nodes if the loop currently reads no nodes (`stale`). Gives up after _PATIENCE_S
        if Slurm does not answer."""
        if self.stale and self.known:
            with suppress(SlurmError, TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    await self.read()

    def _open_to_nominated(self, manifest: Manifest, asked: Amounts, closed: dict[str, str]) -> None:
        """Opens the nominated Node if the Pod fits there without the leaving Pods. The nominated Node is
        the Node on which kube-scheduler has evicted Pods for this Pod. This is safe, because
        kube-scheduler counts the leaving Pods until their end, and /bind checks again. If the Node
        stayed closed until the end of the leaving Pods, kube-scheduler would evict other Pods on another
        Node."""
        node = (manifest.get("status") or {}).get("nominatedNodeName")
        if node in closed and self._occupancy.fits_without_leaving(asked, node):
            del closed[node]

    async def _wake(self) -> None:
        """Changes an annotation of the waiting Pods that may fit now, so that kube-scheduler tries these
        Pods again. Leaves out Pods of namespaces outside the extender's scope."""
        if not self.known:
            return
        for pod in self._occupancy.take_those_with_room():
            if not self._translation.scope.has(pod.namespace):
                continue  # the extender changes no Pod there; kube-scheduler retries by itself
            stamp = {CAPACITY_FREED: datetime.now(UTC).isoformat()}
            patch: dict[str, Any] = {"metadata": {"uid": pod.uid, "annotations": stamp}}
            try:
                await self._kubernetes.patch_pod(pod.namespace, pod.name, patch)
            except KubernetesError as error:
                # Usually the Pod is gone. If the Pod still waits, kube-scheduler retries the Pod.
                tell = self._health.news(common_problem(error), log.info)
                tell("annotation of a waiting Pod not changed", **about(pod), error=str(error))

    def _note_question(self) -> None:
        """Makes the loop read Slurm's nodes for at least _IDLE_S more."""
        self._asked_at = asyncio.get_running_loop().time()
        self._asked.set()

    def _note(self, manifest: Manifest, asked: Amounts, *, unschedulable: bool) -> None:
        metadata = manifest["metadata"]
        uid = metadata.get("uid") or ""
        if not unschedulable:
            self._occupancy.forget(uid)
            return
        namespace, name = metadata.get("namespace") or "default", metadata.get("name") or ""
        priority = manifest["spec"].get("priority") or 0
        self._occupancy.remember(UnschedulablePod(uid, namespace, name, priority, asked, self._asked_at))

    def _slurms(self, names: Sequence[str]) -> Sequence[str]:
        """Returns the given Nodes for which Slurm has a node, by the last reading of nodes. Before the
        first reading, a Node counts if its Slurm node is in a partition. If the partitions are also
        unknown, returns all Nodes."""
        if self._slurms_nodes:
            return [name for name in names if name in self._slurms_nodes]
        return self._in_partitions(names)

    def _slurms_or_newer(self, names: Collection[str]) -> Sequence[str]:
        """Returns the given Nodes for which Slurm has a node. A Node that the last reading lacks also
        counts if its Slurm node is in a partition, because the node may be newer than the reading. If
        the partitions are unknown, returns all Nodes."""
        newer = set(self._in_partitions([name for name in names if not self.was_read(name)]))
        return [name for name in names if self.was_read(name) or name in newer]

    def _in_partitions(self, names: Sequence[str]) -> Sequence[str]:
        if not names:  # no names: the usual case
            return names
        view = self._view()
        known = {node for partition in view.partitions.values() for node in partition.nodes}
        own = {name: node.slurm_name for name in names if (node := view.nodes.get(name))}
        return [name for name in names if not known or own.get(name, name) in known]


def _left(
    nodes: Sequence[SlurmNode], view: ClusterView, translation: TranslationConfig
) -> dict[str, Amounts]:
    """Returns, for each Node that names a Slurm node, the resources that the Slurm node leaves to
    unmanaged Pods. While no Nodes are known, the keys are the names of the Slurm nodes."""
    return {
        name: open_to_pods(node, translation)
        for node in nodes
        for name in (view.names.naming(node.name) if view.nodes else (node.name,))
    }
