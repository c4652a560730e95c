"""The binder binds a Pod to a Node of the Pod's job, and to no other Node (invariant I2).

The binder compares the job with the Pod. The Binding has the uid and resourceVersion of the Pod. If the
Pod changes in between, the Binding fails, and kube-scheduler tries again. The leader knows the Pod's
version. Other replicas read the Pod first, and the leader also reads the Pod after a change. An
unmanaged Pod has no job, and must fit into the room that Slurm leaves.

The binder answers within the timeout of kube-scheduler's call (`deadline`), and posts no Binding later.
If a Binding gets no answer within the timeout, the Binding continues. The Node stays reserved, and the
next call for the Pod returns the outcome. The calls for the members of a gang wait for each other
(`gang_barrier`).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from extender.bind.gang_barrier import MORE_S, GangBarrier, MembersMissing
from extender.bind.job_as_read import JobAsRead, NotBound
from extender.bind.node_reservation import DoesNotFit, NodeReservation
from extender.bind.running import RunningJobs
from extender.execution.failures import failure_of
from extender.explain.wording import NOT_SERVED
from extender.jobs.overlap import units_on
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
from extender.pod_request.workload import Workload
from extender.record.config import PlacementConfig
from extender.record.member import Member
from extender.record.placeholder import Placeholder
from kubernetes_client.errors import Conflict, KubernetesError, NotFound, Unavailable
from kubernetes_client.protocol import Kubernetes
from slurm_client.errors import SlurmError
from slurm_client.model import Job
from slurm_client.protocol import Slurm
from wellknown.allocation import Allocation
from wellknown.job_key import JobIdRange, whole_number
from wellknown.names import JOB_ID

_FRESH_S = 5.0
"""Age of an immediate job up to which the state of the job is enough. The binder does not read the job
then, because a read for each Pod of a burst would cost as much as the Pod's allocation. Only
administrators may suspend the job, because the job belongs to the token's user."""


Membership = tuple[Workload, int]
"""The gang of a Pod, and the id of the gang's job."""


@dataclass(frozen=True, slots=True)
class Target:
    """kube-scheduler's request to bind this Pod to this Node."""

    namespace: str
    name: str
    uid: str
    node: str


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
        self._barrier = GangBarrier(self._some_bound, self._read)
        self._under_way: dict[tuple[Target, bool], asyncio.Task[Membership | None]] = {}

    def job_of(self, target: Target) -> int | None:
        """Returns the id of a Pod's job; None while this replica does not lead."""
        ledger = self._ledger()
        record = None if ledger is None else ledger.record_of(target.uid)
        return None if record is None else record.job.id

    async def bind(self, target: Target) -> None:
        """Binds the Pod, or raises NotBound. Returns without an error if the Pod is already bound to the
        Node."""
        try:
            member = await self._bind_in_time(target)
            if member is not None:
                await self._bind_member(target, *member)
        except MembersMissing as error:
            words = f"the Pod's gang waits for {error.missing} more Pods at kube-scheduler"
            raise NotBound(words) from error
        except NotFound as error:
            raise NotBound("the Pod does not exist any more") from error
        except (KubernetesError, SlurmError) as error:
            raise NotBound(failure_of(error).message) from error
        except DoesNotFit as error:
            raise NotBound(str(error)) from error.__cause__ or error

    async def _bind_member(self, target: Target, gang: Workload, job_id: int) -> None:
        """Binds a member of a gang, after kube-scheduler has called for all members."""
        try:
            await self._barrier.enter(gang, job_id, target.uid)
            await self._bind_in_time(target, passed=True)
        finally:
            self._barrier.leave(gang, job_id, target.uid)

    async def _bind_in_time(self, target: Target, *, passed: bool = False) -> Membership | None:
        """Binds the Pod, or waits for an earlier call for the same Pod and Node. Returns the gang and
        the job if the Pod is not bound, because the Pod must pass the barrier first. Raises Unavailable
        if no answer comes in time."""
        key = target, passed
        work = self._under_way.get(key)
        if work is None:
            work = self._under_way[key] = asyncio.ensure_future(self._bind(target, passed=passed))
            work.add_done_callback(partial(self._ended, key))
        try:
            return await work_in_time(work, MORE_S if passed else 0.0)
        except TimeoutError as error:
            raise Unavailable(0, "no answer to the Binding in time for kube-scheduler") from error

    def _ended(self, key: tuple[Target, bool], work: asyncio.Task[Membership | None]) -> None:
        """Forgets a finished Binding, and reads its error. If no call waits for the error after the
        deadline, asyncio would otherwise report the error as unhandled."""
        del self._under_way[key]
        if not work.cancelled():
            work.exception()

    async def _bind(self, target: Target, *, passed: bool) -> Membership | None:
        with questions_in_time(MORE_S if passed else 0.0):
            known = self._known(target)
            if known is not None and known[0].workload.size > 1 and not passed:
                return known[0].workload, known[0].job.known_id
            if await self._bind_as_known(target, known):
                return None
            return await self._bind_as_read(target, passed=passed)

    def _known(self, target: Target) -> tuple[Placeholder, Member] | None:
        """Returns the record and the member of a placed Pod; None while this replica does not lead."""
        ledger = self._ledger()
        return None if ledger is None else ledger.allocated(target.uid)

    async def _bind_as_known(self, target: Target, known: tuple[Placeholder, Member] | None) -> bool:
        """Binds without a read if the leader knows the Pod, its slot and all Pods on the Node. Returns
        False if the Pod was not bound."""
        ledger = self._ledger()
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

    async def _bind_as_read(self, target: Target, *, passed: bool) -> Membership | None:
        pod_read = self._kubernetes.read_pod(target.namespace, target.name)
        manifest = await kubernetes_in_time(pod_read)
        if manifest is None or manifest["metadata"]["uid"] != target.uid:
            raise NotBound("the Pod does not exist any more")
        pod = parse_pod(manifest, self._translation)
        if pod.life.node is not None:
            if pod.life.node != target.node:
                raise NotBound(f"the Pod is bound to {pod.life.node} already")
            return None
        ours = self._translation.manages(manifest)
        member = _membership(pod) if ours and not passed else None
        if member is not None:
            return member
        allocation = await self._granted(pod, target.node) if ours else None
        async with self._reservation.held(manifest, target.node, allocation):
            await self._post(target, pod, allocation)
        return None

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
        job_id = pod.scheduling.job_id
        in_gang = pod.group is not None
        read = self._barrier.job(pod.workload, job_id) if in_gang else self._read(job_id)
        of_job = await slurm_in_time(read)
        view = self._view()
        rules = PlacementConfig(cluster=view.cluster, ids=self._ids)
        allocation = of_job.slot(pod, node, view, rules)
        if of_job.job is not None and allocation != pod.scheduling.allocation:
            self._report(pod.workload.uid, of_job.job)
        return allocation

    async def _read(self, job_id: int) -> JobAsRead:
        return JobAsRead(await self._slurm.job(job_id))

    async def _some_bound(self, gang: Workload, job_id: int) -> bool:
        """Returns True if a member of a gang is bound by a job. Returns False if kube-apiserver does not
        answer."""
        ledger = self._ledger()
        record = None if ledger is None else ledger.record_of(gang.uid)
        if record is not None and record.job.id == job_id:
            return any(pod.life.node is not None for pod in record.pods)
        try:
            listed = await self._kubernetes.list("pods", f"metadata.namespace={gang.namespace}")
        except KubernetesError:
            return False
        bound = (each["metadata"] for each in listed["items"] if each["spec"].get("nodeName"))
        named = ((each.get("annotations") or {}).get(JOB_ID, "") for each in bound)
        return any(whole_number(text) == job_id for text in named)


def _membership(pod: Pod) -> Membership | None:
    """Returns the gang and the job of a member; None for a Pod without a gang or without a job."""
    job_id = pod.scheduling.job_id
    return None if pod.group is None or job_id is None else (pod.group, job_id)


def _overlaps(slot: Allocation | None, record: Placeholder) -> bool:
    """Returns True if a Pod of another workload's record uses a core or a device of a slot."""
    return slot is not None and any(units_on(pod, slot) for pod in record.pods)
