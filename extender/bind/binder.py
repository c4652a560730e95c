"""The binder binds a Pod to a Node of the Pod's job, and to no other Node (invariant I2).

The binder compares the job with the Pod. The Binding has the uid and resourceVersion of the Pod. If the
Pod changes in between, the Binding fails, and kube-scheduler tries again. The leader knows the Pod's
version. Other replicas read the Pod first, and the leader also reads the Pod after a change. An
unmanaged Pod has no job, and must fit into the room that Slurm leaves.

The binder answers within the timeout of kube-scheduler's call (`deadline`), and posts no Binding later.
If a Binding gets no answer within the timeout, the Binding continues. The Node stays reserved, and the
next call for the Pod returns the outcome.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from extender.bind.node_reservation import DoesNotFit, NodeReservation
from extender.bind.running import RunningJobs
from extender.execution.failures import failure_of
from extender.explain.sentences import sentence
from extender.explain.wording import NOT_SERVED
from extender.jobs.claim import JobClaim
from extender.jobs.overlap import units_on
from extender.jobs.slots import nodes_by, slots
from extender.jobs.verdict import judge
from extender.kube_scheduler.deadline import (
    kubernetes_in_time,
    questions_in_time,
    slurm_in_time,
    work_in_time,
)
from extender.node_view.view import ClusterView
from extender.placement.ledger import Ledger
from extender.pod_request.pod import Pod, parse_pod
from extender.pod_request.translation import TranslationConfig
from extender.record.config import PlacementConfig
from extender.record.member import Member
from extender.record.placeholder import Placeholder
from kubernetes_client.errors import Conflict, KubernetesError, NotFound, Unavailable
from kubernetes_client.protocol import Kubernetes
from slurm_client.errors import SlurmError
from slurm_client.model import Job
from slurm_client.protocol import Slurm
from wellknown.allocation import Allocation
from wellknown.job_key import JobIdRange

_FRESH_S = 5.0
"""Age of an immediate job up to which the state of the job is enough. The binder does not read the job
then, because a read for each Pod of a burst would cost as much as the Pod's allocation. Only
administrators may suspend the job, because the job belongs to the token's user."""


@dataclass(frozen=True, slots=True)
class Target:
    """kube-scheduler's request to bind this Pod to this Node."""

    namespace: str
    name: str
    uid: str
    node: str


class NotBound(Exception):
    """The Pod was not bound. kube-scheduler's Event on the Pod has the message."""


def verified(
    pod: Pod, job: Job | None, node: str, view: ClusterView, rules: PlacementConfig
) -> Allocation:
    """Returns the allocation that Slurm granted to a Pod on a Node. Raises NotBound if the Pod has no
    valid allocation there."""
    if job is None or not job.state.running:
        raise NotBound(f"Slurm job {pod.scheduling.job_id} is not running")
    attempt, cluster = pod.scheduling.attempt, rules.cluster
    claim = JobClaim(cluster=cluster, workload=pod.workload, ids=rules.ids, attempt=attempt, view=view)
    verdict = judge(job, claim, pod.workload.request([pod.request]).job)
    if not verdict.is_ours:
        raise NotBound(f"Slurm job {job.id} is not this Pod's placeholder")
    lacks = verdict.lacks()
    if lacks:
        found = "; ".join(map(sentence, lacks))
        raise NotBound(f"Slurm job {job.id} differs from the Pod's request: {found}")
    has = slots(job.grant, job.id, pod.workload.size, nodes_by(view))
    there = [slot for slot in has if slot.node == node]
    own = next((slot for slot in there if len(there) == 1 or slot == pod.scheduling.allocation), None)
    if own is None:
        no_slot = "has no slot for this Pod" if there else "does not run"
        raise NotBound(f"Slurm job {job.id} {no_slot} on {node}")
    return own


class Binder:
    """Answers kube-scheduler's bind calls."""

    def __init__(  # noqa: PLR0913 -- the called systems, and callbacks
        self,
        kubernetes: Kubernetes,
        slurm: Slurm,
        translation: TranslationConfig,
        view: Callable[[], ClusterView],
        reservation: NodeReservation,
        ledger: Callable[[], Ledger | None] = lambda: None,
        *,
        ids: JobIdRange,
        report: Callable[[str, Job], None] = lambda *_: None,
    ) -> None:
        """`ids` are the placeholders' ids. `ledger` returns None while this replica does not lead.
        `report` is called for a job whose slot differs from the slot on the Pod. The function passes the
        uid of the workload and the job to the leader."""
        self._kubernetes, self._slurm, self._translation = kubernetes, slurm, translation
        self._view, self._ledger, self._reservation = view, ledger, reservation
        self._ids, self._report = ids, report
        self._running = RunningJobs(slurm)
        self._under_way: dict[Target, asyncio.Task[None]] = {}

    def job_of(self, target: Target) -> int | None:
        """Returns the id of a Pod's job; None while this replica does not lead."""
        ledger = self._ledger()
        record = None if ledger is None else ledger.record_of(target.uid)
        return None if record is None else record.job.id

    async def bind(self, target: Target) -> None:
        """Binds the Pod, or raises NotBound. Returns without an error if the Pod is already bound to the
        Node."""
        try:
            await self._bind_in_time(target)
        except NotFound as error:
            raise NotBound("the Pod does not exist any more") from error
        except (KubernetesError, SlurmError) as error:
            raise NotBound(failure_of(error).message) from error
        except DoesNotFit as error:
            raise NotBound(str(error)) from error.__cause__ or error

    async def _bind_in_time(self, target: Target) -> None:
        """Binds the Pod, or waits for an earlier call for the same Pod and Node. Raises Unavailable if
        no answer comes in time."""
        work = self._under_way.get(target)
        if work is None:
            work = self._under_way[target] = asyncio.ensure_future(self._bind(target))
            work.add_done_callback(partial(self._ended, target))
        try:
            await work_in_time(work)
        except TimeoutError as error:
            raise Unavailable(0, "no answer to the Binding in time for kube-scheduler") from error

    def _ended(self, target: Target, work: asyncio.Task[None]) -> None:
        """Forgets a finished Binding, and reads its error. If no call waits for the error after the
        deadline, asyncio would otherwise report the error as unhandled."""
        del self._under_way[target]
        if not work.cancelled():
            work.exception()

    async def _bind(self, target: Target) -> None:
        with questions_in_time():
            if not await self._bind_as_known(target):
                await self._bind_as_read(target)

    async def _bind_as_known(self, target: Target) -> bool:
        """Binds without a read if the leader knows the Pod, its slot and all Pods on the Node. Returns
        False if the Pod was not bound."""
        ledger = self._ledger()
        known = None if ledger is None else ledger.allocated(target.uid)
        if ledger is None or known is None or self._reservation.has_others(target.node):
            return False
        # The ledger also knows a Pod that was bound a moment ago. The watch may not show this Pod on the
        # Node yet.
        record, member = known
        others = [each for each in ledger.holding(target.node) if each is not record]
        if any(_overlaps(member.slot, each) for each in others):
            return False
        allocation, alone = await asyncio.gather(
            self._still_granted(record, member, target.node), self._have_their_jobs(others)
        )
        if not alone or allocation != member.slot:  # other Pods may use the other slot
            return False
        try:
            await self._post(target, member.pod, allocation)
        except Conflict:  # the Pod has changed
            return False
        return True

    async def _bind_as_read(self, target: Target) -> None:
        pod_read = self._kubernetes.read_pod(target.namespace, target.name)
        manifest = await kubernetes_in_time(pod_read)
        if manifest is None or manifest["metadata"]["uid"] != target.uid:
            raise NotBound("the Pod does not exist any more")
        pod = parse_pod(manifest, self._translation)
        if pod.life.node is not None:
            if pod.life.node != target.node:
                raise NotBound(f"the Pod is bound to {pod.life.node} already")
            return
        ours = self._translation.manages(manifest)
        allocation = await self._granted(pod, target.node) if ours else None
        async with self._reservation.held(manifest, target.node, allocation):
            await self._post(target, pod, allocation)

    async def _post(self, target: Target, pod: Pod, allocation: Allocation | None) -> None:
        node = None if allocation is None else self._view().nodes.get(target.node)
        if node is not None and not node.serves(pod.request.constraints.demands.devices):
            raise NotBound(NOT_SERVED)
        metadata: dict[str, Any] = {"uid": pod.uid, "resourceVersion": pod.resource_version}
        if allocation is not None:
            metadata["annotations"] = allocation.annotations()
        await self._kubernetes.bind_pod(target.namespace, target.name, target.node, metadata)

    async def _have_their_jobs(self, bound: Sequence[Placeholder]) -> bool:
        """Returns True if each of the bound Pods still has its job. The jobs are read in the same call
        as the new Pod's job."""
        jobs = [None if each.job.over else each.job.id for each in bound]
        known = [job_id for job_id in jobs if job_id is not None]
        return len(known) == len(jobs) and await slurm_in_time(self._running.hold_nodes(known))

    async def _still_granted(self, record: Placeholder, member: Member, node: str) -> Allocation:
        """Returns the allocation if still valid. For an immediate job that began a moment ago, the state
        is enough. The binder reads any other job: Slurm may have started the job again on another node,
        or the job may have been suspended and resumed."""
        slot, age_s = member.slot, asyncio.get_running_loop().time() - record.job.since
        if slot is None or slot.node != node or not record.job.asked.immediate or age_s > _FRESH_S:
            return await self._granted(member.pod, node)
        if not await slurm_in_time(self._running.runs(slot.job_id)):
            raise NotBound(f"Slurm job {slot.job_id} is not running")
        return slot

    async def _granted(self, pod: Pod, node: str) -> Allocation:
        if pod.scheduling.job_id is None:
            raise NotBound("the Pod has no Slurm job")
        job = await slurm_in_time(self._slurm.job(pod.scheduling.job_id))
        view = self._view()
        rules = PlacementConfig(cluster=view.cluster, ids=self._ids)
        allocation = verified(pod, job, node, view, rules)
        if job is not None and allocation != pod.scheduling.allocation:
            self._report(pod.workload.uid, job)
        return allocation


def _overlaps(slot: Allocation | None, record: Placeholder) -> bool:
    """Returns True if a Pod of another workload's record uses a core or a device of a slot."""
    return slot is not None and any(units_on(pod, slot) for pod in record.pods)
