"""The last check that a Pod fits on its Node, and the reservation of that room while it is bound.

kube-scheduler counts all Pods and Slurm all jobs; neither counts native jobs together with unmanaged
Pods, or with Pods that outlast their own jobs by their grace. So an unmanaged Pod must fit into what
Slurm leaves, and a managed Pod is not bound where other Pods have what Slurm gave it: where they stay
it needs another allocation, where they are leaving it waits for them. The Node is held meanwhile: two
Pods never count on the same room. Nothing keeps Slurm from starting a native job there after the
answer: it does not know of unmanaged Pods.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime

from extender.kube_scheduler.deadline import kubernetes_in_time, slurm_in_time
from extender.node_view.pods_on_node import gone_in, pods_on
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
from slurm_client.model import JobState
from slurm_client.protocol import Slurm
from wellknown.allocation import Allocation

_ADOPTED_WITHIN_S = 5.0


class DoesNotFit(Exception):
    """The Pod does not fit any more."""


class NodeReservation:
    """Lets one Pod at a time onto a Node. kube-scheduler has one leader, so that one replica binds."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        slurm: Slurm,
        translation: TranslationConfig,
        capacity: FreeCapacity,
    ) -> None:
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._translation = translation
        self._capacity = capacity
        self._held: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._adopted_pods: set[str] = set()
        """Nodes that unmanaged Pods were bound to here; the watch may not know yet."""

    def has_adopted_pods(self, node: str) -> bool:
        """Tells whether unmanaged Pods may be on a Node."""
        return node in self._adopted_pods or self._capacity.may_have_adopted_pods(node)

    def held(
        self, manifest: Manifest, node: str, allocation: Allocation | None
    ) -> AbstractAsyncContextManager[None]:
        """Holds the Node while a Pod is bound to what Slurm granted it, or else to what Slurm leaves.
        Raises DoesNotFit, and both systems' errors."""
        if allocation is None:
            return self._left(manifest, node)
        return self._granted(manifest, node, allocation.job_id)

    @asynccontextmanager
    async def _left(self, manifest: Manifest, node: str) -> AsyncIterator[None]:
        if not self._capacity.concerns(manifest) or not self._capacity.is_slurms(node):
            yield
            return
        async with self._alone(node):
            self._adopted_pods.add(node)  # from now on a managed Pod waits for the answer
            try:
                fits = await self._fits(manifest, node)
            except SlurmError as error:
                if error.common_trouble != OUTAGE:
                    raise
                raise DoesNotFit(self._capacity.unknown(manifest)) from error
            if not fits:
                raise DoesNotFit(FULL)
            yield

    @asynccontextmanager
    async def _granted(self, manifest: Manifest, node: str, job_id: int) -> AsyncIterator[None]:
        async with self._alone(node):
            taken = await self._taken(manifest, node)
            if taken == TAKEN:
                self._capacity.allocation_taken(manifest["metadata"]["uid"], job_id)
            if taken is not None:
                raise DoesNotFit(taken)
            yield

    @asynccontextmanager
    async def _alone(self, node: str) -> AsyncIterator[None]:
        """Holds the Node. A holder for longer than the deadline waits for kube-apiserver's answer to a
        Binding, so Unavailable is raised."""
        lock = self._held[node]
        await kubernetes_in_time(lock.acquire())
        try:
            yield
        finally:
            lock.release()

    async def _fits(self, manifest: Manifest, node: str) -> bool:
        """Tells whether a Pod fits on a Node that Slurm has. It reads the Pods first, then Slurm's
        node, then the placeholders: a job that begins or ends in between counts twice, and never not at
        all. Bound Pods are read each time, so that the last Binding here is among them."""
        bound = await kubernetes_in_time(pods_on(self._kubernetes, node))
        slurm_node = await self._capacity.read_node(node)
        if slurm_node is None:  # one reply without it proves nothing
            if self._capacity.was_read(node) or not self._capacity.known:
                raise DoesNotFit(UNKNOWN)
            return True
        free = open_to_pods(slurm_node, self._translation).less(await self._uncounted(bound))
        return requested(manifest, self._translation).within(free)

    async def _taken(self, manifest: Manifest, node: str) -> str | None:
        """Returns why a managed Pod cannot have what Slurm gave it, None where it can. Exempt Pods are
        not counted: they run beside all jobs."""
        on_node = await kubernetes_in_time(pods_on(self._kubernetes, node))
        bound = [pod for pod in on_node if not exempt(pod)]
        if not await self._uncounted(bound):
            self._adopted_pods.discard(node)  # until another comes: Slurm counts these
            return None
        slurm_node = await self._capacity.read_node(node)
        if slurm_node is None:  # Slurm granted it
            return UNKNOWN
        asked, left = requested(manifest, self._translation), left_by_jobs(slurm_node, self._translation)
        states = await self._states(bound)
        stay = [pod for pod in bound if self._stays(pod, states)]
        if not left.less(list(uncounted(stay, states, self._translation))).covers(asked):
            return TAKEN
        everybody = list(uncounted(bound, states, self._translation))
        return None if left.less(everybody).covers(asked) else LEAVING

    def _stays(self, pod: Manifest, states: Mapping[int, JobState]) -> bool:
        """Tells whether a Pod that Slurm does not count stays: an adopted Pod, or a managed Pod whose
        job, or the start of whose job, Slurm forgot. That job gets its room again, before all others.
        One answer of Slurm is enough: it decides only where to place this Pod."""
        state = states.get(placeholder_of(pod, self._translation) or 0)
        if state is not None and state.completing:  # Slurm may count it still
            return False
        if not self._translation.manages(pod):
            return not self._is_new(pod)
        leaves = gone_in(pod, datetime.now(UTC)) <= self._translation.grace.leaves_within
        return not leaves and (state is None or state.pending)

    def _is_new(self, adopted_pod: Manifest) -> bool:
        """Tells whether an adopted Pod is so new that Slurm may count it before it has its annotation:
        its room is waited for."""
        return (
            self._translation.adopts and bound_for_s(adopted_pod, datetime.now(UTC)) < _ADOPTED_WITHIN_S
        )

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
