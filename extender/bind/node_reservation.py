"""The last check that a Pod fits on a Node, and the reservation of the Node during the Binding.

kube-scheduler counts all Pods, and Slurm counts all jobs. Neither system counts native jobs together
with unmanaged Pods, or together with Pods that still run after the end of their job. An unmanaged Pod
must fit into the room that Slurm leaves. A managed Pod is not bound while other Pods use its allocation.
If these Pods stay, the managed Pod needs another allocation. If these Pods are leaving, the managed Pod
waits. After this check, Slurm may still start a native job on the resources of an unmanaged Pod, because
Slurm does not know unmanaged Pods.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime

from extender.jobs.overlap import common
from extender.kube_scheduler.deadline import kubernetes_in_time, slurm_in_time
from extender.node_sync.lingering_check import LingeringCheck
from extender.node_sync.overlaps import Overlaps
from extender.node_view.pods_on_node import gone_in, pods_on
from extender.pod_request.pod import parse_pod
from extender.pod_request.translation import TranslationConfig
from extender.unmanaged.capacity import (
    Amounts,
    bound_for_s,
    exempt,
    left_by_jobs,
    open_to_pods,
    placeholder_of,
    requested,
    uncounted,
)
from extender.unmanaged.free_capacity import FULL, LEAVING, TAKEN, UNKNOWN, FreeCapacity
from kubernetes_client.protocol import Kubernetes, Manifest
from slurm_client.errors import OUTAGE, SlurmError
from slurm_client.job_state import JobState
from slurm_client.protocol import Slurm
from wellknown.allocation import Allocation

_ADOPTED_WITHIN_S = 5.0


class DoesNotFit(Exception):
    """Raised if the Pod does not fit on the Node now."""


class NodeReservation:
    """Lets one Pod at a time be bound to a Node. Locks in this process are enough, because only one
    replica of the extender binds Pods: the replica that the leading kube-scheduler calls."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        slurm: Slurm,
        translation: TranslationConfig,
        capacity: FreeCapacity,
        overlaps: Overlaps,
        lingering: LingeringCheck,
    ) -> None:
        self._kubernetes, self._slurm = kubernetes, slurm
        self._translation, self._capacity = translation, capacity
        self._overlaps, self._lingering = overlaps, lingering
        self._held: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._nodes_of_unmanaged_pods: set[str] = set()
        """Nodes to which this replica has bound unmanaged Pods. The watch may not know these Pods
        yet."""

    def has_others(self, node: str) -> bool:
        """Returns True if Pods that Slurm does not count, or containers of deleted Pods, may be on a
        Node."""
        bound_here = node in self._nodes_of_unmanaged_pods
        uncounted_pods = bound_here or self._capacity.may_have_uncounted_pods(node)
        return uncounted_pods or self._lingering.may_linger(node)

    def held(
        self, manifest: Manifest, node: str, allocation: Allocation | None
    ) -> AbstractAsyncContextManager[None]:
        """Reserves the Node while a Pod is bound. Without an allocation, the Pod must fit into the room
        that Slurm leaves. Raises DoesNotFit, and the errors of Slurm and of kube-apiserver."""
        if allocation is None:
            return self._left(manifest, node)
        return self._granted(manifest, node, allocation)

    @asynccontextmanager
    async def _left(self, manifest: Manifest, node: str) -> AsyncIterator[None]:
        if not self._capacity.concerns(manifest) or not self._capacity.is_slurms(node):
            yield
            return
        async with self._alone(node):
            # The /bind of a managed Pod to this Node now also waits for the lock.
            self._nodes_of_unmanaged_pods.add(node)
            try:
                await self._without_lingering(node)
                fits = await self._fits(manifest, node)
            except SlurmError as error:
                if error.common_problem != OUTAGE:
                    raise
                raise DoesNotFit(self._capacity.unknown(manifest)) from error
            if not fits:
                raise DoesNotFit(FULL)
            yield

    @asynccontextmanager
    async def _granted(
        self, manifest: Manifest, node: str, allocation: Allocation
    ) -> AsyncIterator[None]:
        async with self._alone(node):
            await self._without_lingering(node, allocation)
            taken = await self._taken(manifest, node, allocation)
            if taken == TAKEN:
                self._capacity.allocation_taken(manifest["metadata"]["uid"], allocation.job_id)
            if taken is not None:
                raise DoesNotFit(taken)
            yield

    async def _without_lingering(self, node: str, allocation: Allocation | None = None) -> None:
        """Raises DoesNotFit if containers of a deleted Pod are in the way."""
        pods = await slurm_in_time(self._lingering.in_the_way(node))
        pods += self._lingering.in_its_slot(allocation) if allocation is not None else []
        if pods:
            raise DoesNotFit(f"containers of a Pod that was deleted by force still end there: {pods[0]}")

    @asynccontextmanager
    async def _alone(self, node: str) -> AsyncIterator[None]:
        """Reserves the Node for one Pod. Raises Unavailable if the Node is still reserved at the
        deadline. kube-apiserver has then not yet answered the Binding of another Pod to the Node."""
        lock = self._held[node]
        await kubernetes_in_time(lock.acquire())
        try:
            yield
        finally:
            lock.release()

    async def _fits(self, manifest: Manifest, node: str) -> bool:
        """Returns True if a Pod fits on a Node of Slurm. First reads the bound Pods, including the last
        Pod that this replica has bound. Then reads Slurm's node, and then the states of the Pods' jobs.
        In this order, a Pod whose job begins or ends between these reads counts once or twice, but is
        never left out."""
        bound = await kubernetes_in_time(pods_on(self._kubernetes, node))
        slurm_node = await self._capacity.read_node(node)
        if slurm_node is None:  # one reply without the node proves nothing
            if self._capacity.was_read(node) or not self._capacity.known:
                raise DoesNotFit(UNKNOWN)
            return True
        free = open_to_pods(slurm_node, self._translation).less(await self._uncounted(bound))
        return requested(manifest, self._translation).within(free)

    async def _taken(self, manifest: Manifest, node: str, allocation: Allocation) -> str | None:
        """Returns the reason for which a managed Pod cannot use its allocation now; None if the Pod can.
        Pods of DaemonSets and critical Pods (`exempt`) do not count, because such Pods run beside all
        jobs."""
        on_node = await kubernetes_in_time(pods_on(self._kubernetes, node))
        others = [pod for pod in on_node if pod["metadata"]["uid"] != manifest["metadata"]["uid"]]
        if await self._overlapping(others, allocation):
            return LEAVING
        bound = [pod for pod in on_node if not exempt(pod)]
        if not await self._uncounted(bound):
            # Slurm counts all Pods on the Node. The /bind of the next unmanaged Pod adds the Node again.
            self._nodes_of_unmanaged_pods.discard(node)
            return None
        slurm_node = await self._capacity.read_node(node)
        if slurm_node is None:  # cannot be right, because Slurm has granted the node
            return UNKNOWN
        asked, left = requested(manifest, self._translation), left_by_jobs(slurm_node, self._translation)
        states = await self._states(bound)
        stay = [pod for pod in bound if self._stays(pod, states)]
        if not left.less(list(uncounted(stay, states, self._translation))).covers(asked):
            return TAKEN
        everybody = list(uncounted(bound, states, self._translation))
        return None if left.less(everybody).covers(asked) else LEAVING

    async def _overlapping(self, on_node: Iterable[Manifest], allocation: Allocation) -> bool:
        """Returns True if another Pod still has a core or a device of an allocation. A Pod with the same
        job is another member of the gang, and has other cores."""
        near = [
            parse_pod(pod, self._translation)
            for pod in on_node
            if (own := Allocation.parse(pod["metadata"].get("annotations") or {})) is not None
            and common(own, allocation)
            and self._translation.manages(pod)
        ]
        if any(pod.scheduling.job_id == allocation.job_id for pod in near):
            return True
        return bool(near and await slurm_in_time(self._overlaps.in_the_way(allocation, near)))

    def _stays(self, pod: Manifest, states: Mapping[int, JobState]) -> bool:
        """Returns True if a Pod that Slurm does not count will stay on the Node. An unmanaged Pod stays.
        A managed Pod also stays if Slurm has lost its job, or has forgotten the start of the job, and
        queues the job again. Slurm then gives the room to the Pod's job before any other job. One answer
        of Slurm is enough, because the answer only decides whether the new Pod waits, or gets another
        Node."""
        state = states.get(placeholder_of(pod, self._translation) or 0)
        if state is not None and state.completing:  # Slurm may still count the Pod
            return False
        now = datetime.now(UTC)
        if not self._translation.manages(pod):  # an adopted Pod may have a job before the annotation
            return not (self._translation.adopts and bound_for_s(pod, now) < _ADOPTED_WITHIN_S)
        leaves = gone_in(pod, now) <= self._translation.grace.leaves_within
        return not leaves and (state is None or state.pending)

    async def _uncounted(self, pods: Sequence[Manifest]) -> list[Amounts]:
        """Returns the requests of Pods that Slurm does not count."""
        return list(uncounted(pods, await self._states(pods), self._translation))

    async def _states(self, pods: Sequence[Manifest]) -> Mapping[int, JobState]:
        """Returns the states of the jobs that Pods name."""
        jobs = [placeholder_of(pod, self._translation) for pod in pods]
        known = [job for job in jobs if job is not None]
        if not known:
            return {}
        return await self._capacity.answered(slurm_in_time(self._slurm.states(known)))
