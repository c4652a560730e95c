"""The Prolog gate finds the Pods in the way of a job that starts on a node. Three kinds of Pods are in
the way: Pods whose own job has ended, deleted Pods whose containers may run without their job, and Pods
on cores or devices of the starting job.

At the end of a job, Slurm gives the node to the next job. But the Pod of the ended job still has a grace
period. So the Prolog of each node (deploy/slurm) calls the gate, and the first process of the next job
waits for the answer. If Slurm serves several Kubernetes clusters, each cluster answers for its own Nodes
only."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from extender.jobs.claim import JobClaim, claim_of, key_of, own_key
from extender.jobs.slots import whole_on
from extender.jobs.verdict import Part, judge
from extender.node_sync.lingering_check import LingeringCheck
from extender.node_sync.overlaps import Overlaps
from extender.node_view.job_states import JobStates
from extender.node_view.pods_on_node import pods_on
from extender.node_view.view import ClusterView
from extender.placement.ledger import Ledger
from extender.placement.transitions.on_job import claim_of_record
from extender.pod_request.pod import Pod, parse_pod
from extender.pod_request.translation import TranslationConfig
from extender.record.placeholder import Placeholder
from extender.record.states import State
from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes
from slurm_client.errors import SlurmError
from slurm_client.job_state import JobState
from slurm_client.model import Grant, Job
from slurm_client.protocol import Slurm

_LOOK_AGAIN_S = 0.1
_KEPT_S = 5.0
"""Time for which the gates of a job's nodes share one read of the job's grant. The time is short,
because a job may start again on other cores."""
_LEAVING = frozenset({State.EVICTING, State.RELEASING})
_BY_ITS_JOB = frozenset({State.ALLOCATED, State.BOUND, State.EVICTING, State.RELEASING})


class NotLeading(Exception):
    """This replica does not lead: the leader knows the answer, or the next leader will soon know the
    answer."""


class NotOurs(Exception):
    """No Node of this cluster stands for the node. The node runs only native jobs, or belongs to another
    cluster."""


class Gate:
    """Answers the Prologs of nodes. `ledger` returns None while this replica does not lead. `poll_now`
    makes the job watch poll a job at once."""

    def __init__(  # noqa: PLR0913 -- the called systems, and callbacks
        self,
        kubernetes: Kubernetes,
        slurm: Slurm,
        translation: TranslationConfig,
        view: Callable[[], ClusterView],
        ledger: Callable[[], Ledger | None],
        poll_now: Callable[[int], None],
        *,
        overlaps: Overlaps,
        lingering: LingeringCheck,
    ) -> None:
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._translation = translation
        self._view = view
        self._ledger = ledger
        self._poll_now = poll_now
        self._states = JobStates(slurm)
        self._overlaps, self._lingering = overlaps, lingering
        self._about_jobs: dict[int, asyncio.Future[bool]] = {}
        """The calls of `is_placeholder` that are under way, by the id of the job."""
        self._grants: dict[int, asyncio.Future[Grant | None]] = {}
        """The reads of the grants of starting jobs, by the id of the job."""

    async def is_placeholder(self, node: str, job_id: int) -> bool:
        """Returns True if a job that starts on a Slurm node is a placeholder of this cluster. Then no
        Pod is in the way. The id alone proves nothing, because Slurm and other clusters may use ids of
        the same range. The gates of a job's nodes share one call. Raises NotOurs, NotLeading,
        SlurmError."""
        self._nodes(node)
        ledger = self._leading()
        if job_id not in ledger.rules.ids and not ledger.has_job(job_id):
            return False
        asked = self._about_jobs.get(job_id)
        if asked is None:
            asked = self._about_jobs[job_id] = asyncio.ensure_future(self._has_key(job_id))
            asked.add_done_callback(lambda _: self._about_jobs.pop(job_id))
        return await asyncio.shield(asked)

    async def wait(
        self, node: str, seconds: float, job_id: int | None = None, *, agent_away: bool = False
    ) -> tuple[str, ...]:
        """Waits until no Pod is in the way of a job on a Slurm node, and returns (). After the given
        seconds, returns the Pods (namespace/name) that are still in the way. If Slurm or Kubernetes
        stops answering, the last answer counts. `job_id` is the job that starts, None if a person asks.
        `agent_away` is True if the node's agent does not answer. Raises NotOurs, NotLeading, SlurmError,
        KubernetesError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        there: tuple[str, ...] = ()
        while True:
            try:
                there = await self.in_the_way(node, job_id, agent_away=agent_away)
            except (SlurmError, KubernetesError):
                if not there:
                    raise
                return there
            if not there or loop.time() >= deadline:
                return there
            # All waiting gates check at the same time.
            await asyncio.sleep(_LOOK_AGAIN_S - loop.time() % _LOOK_AGAIN_S)

    async def in_the_way(
        self, node: str, job_id: int | None = None, *, agent_away: bool = False
    ) -> tuple[str, ...]:
        """Returns the Pods in the way. Checks for three kinds of Pods, in order. Returns the Pods of the
        first kind that has any Pods. First: Pods on the node, or perhaps bound to the node soon, whose
        job does not run there with the Pods' devices. Second: deleted Pods whose containers may run
        without their job. Third: Pods on cores or devices of the starting job. While the agent is away,
        a Pod may still be on an earlier slot.

        Only the leader knows the Pods that may be bound soon, including Pods with annotations of an
        earlier leader. The leader may not know all bound Pods yet, so this method also reads
        kube-apiserver. A Pod that was bound without a job of its own counts as an unmanaged Pod. Raises
        the errors of `wait`."""
        names, ledger = self._nodes(node), self._leading()
        held = [each for name in names for each in ledger.holding(name)]
        there = await self._without_their_jobs(held, node)
        if there:
            return tuple(dict.fromkeys(name for each in there for name in each.names_on(names)))
        lingering = [pod for name in names for pod in await self._lingering.in_the_way(name, node)]
        if lingering:
            return tuple(dict.fromkeys(lingering))
        known = {member.pod.uid for each in held for member in each.members}
        there_now = [pod for name in names for pod in await self._bound(name)]
        bound = [pod for pod in there_now if pod.uid not in known]
        alone = [pod for pod in bound if await self._outlasts_its_job(node, pod)]
        if job_id is not None and not alone:
            members = [member for each in held for member in each.members]
            pods = there_now + [each.pod for each in members if each.pod.life.node is None]
            if agent_away:
                pods += [pod for each in members for pod in each.on_left_slots]
            alone = await self._on_slots_of(job_id, node, names, pods)
        self._leading()  # raises NotLeading if this replica no longer leads
        return tuple(dict.fromkeys(pod.full_name for pod in alone))

    async def _on_slots_of(
        self, job_id: int, slurm_node: str, names: Sequence[str], pods: Sequence[Pod]
    ) -> list[Pod]:
        """Returns the Pods on cores or devices that Slurm gave to a starting job. If Slurm does not
        report the cores of the job, returns all Pods that other jobs placed on the Nodes."""
        if not pods:
            return []
        grant = await self._grant(job_id, slurm_node)
        if grant is None or slurm_node not in grant.nodes:
            job = await self._slurm.job(job_id)
            lives = job is not None and not job.state.ended
            return [pod for pod in pods if lives and _is_placed_on(pod, names, job_id)]
        slots = [whole_on(slurm_node, grant, job_id, name) for name in names]
        found = [await self._overlaps.in_the_way(slot, pods) for slot in slots if slot is not None]
        return [pod for each in found for pod in each]

    async def _grant(self, job_id: int, slurm_node: str) -> Grant | None:
        """Returns the grant of a job that starts on a node, or None for a job that Slurm does not know.
        A known grant without the node is from an earlier start of the job, so the grant is read
        again."""
        earlier = self._grants.get(job_id)
        grant = None if earlier is None else await asyncio.shield(earlier)
        if grant is not None and slurm_node in grant.nodes:
            return grant
        asked = self._grants.get(job_id)
        if asked is None or asked is earlier:
            asked = self._grants[job_id] = asyncio.ensure_future(self._slurm.grant(job_id))
            asked.add_done_callback(lambda done: self._forget(job_id, done))
        return await asyncio.shield(asked)

    def _forget(self, job_id: int, read: asyncio.Future[Grant | None]) -> None:
        is_known = read.exception() is None and read.result() is not None
        later = asyncio.get_running_loop().call_later
        later(_KEPT_S if is_known else 0.0, self._drop, job_id, read)

    def _drop(self, job_id: int, read: asyncio.Future[Grant | None]) -> None:
        if self._grants.get(job_id) is read:
            del self._grants[job_id]

    def _nodes(self, slurm_node: str) -> tuple[str, ...]:
        """Returns the Nodes where Pods of a Slurm node may run. Most often this is the only Node that
        names the Slurm node. Other Nodes are in the result if their Pods have grants of the Slurm node.
        Such a Node has another label now, or was deleted, but Pods may still run there."""
        view, ledger = self._view(), self._ledger()
        nodes = [node.name for node in view.naming(slurm_node)]
        if ledger is not None:
            nodes.extend(sorted(ledger.nodes_granted_by(slurm_node).difference(nodes)))
        if not nodes:
            raise NotOurs if view.cluster else NotLeading
        return tuple(nodes)

    async def _has_key(self, job_id: int) -> bool:
        ledger = self._leading()
        job = await self._slurm.job(job_id)
        key = key_of(job) if job is not None else None
        if key is None:  # the AdminComment was overwritten
            return ledger.has_job(job_id)
        return key.cluster == ledger.rules.cluster

    def _leading(self) -> Ledger:
        ledger = self._ledger()
        if ledger is None:
            raise NotLeading
        return ledger

    async def _without_their_jobs(
        self, held: Sequence[Placeholder], node: str
    ) -> tuple[Placeholder, ...]:
        jobs = [each.job.id for each in held if _goes_by_its_job(each) and each.job.id is not None]
        states = await self._states.of(jobs)
        return tuple([each for each in held if not await self._has_its_job(each, states, node)])

    async def _has_its_job(self, held: Placeholder, states: Mapping[int, JobState], node: str) -> bool:
        """Returns True if a Pod's job still runs on the node. If the job does not run any more, makes
        the job watch poll the job at once. If the job is unverified, or the Pod is leaving, reads the
        whole job, because the job may run elsewhere."""
        if not _goes_by_its_job(held) or held.job.id is None:
            return False
        state = states.get(held.job.id)
        if state is None or not state.running:
            self._poll_now(held.job.id)
            return False
        certain = held.state not in _LEAVING and not held.job.unverified
        return certain or await self._runs_on(node, held)

    async def _outlasts_its_job(self, node: str, pod: Pod) -> bool:
        """Returns True if a Pod was bound for its own job, and the job does not run on the Pod's node.
        Such a Pod has an allocation. Slurm, or else the id of the job, shows whether the job is the
        Pod's own job."""
        pod_allocation = pod.scheduling.allocation
        if pod_allocation is None or pod_allocation.node != pod.life.node:
            return False
        job, keys = await self._slurm.job(pod_allocation.job_id), self._leading().rules
        runs = _runs_on(job, node, claim_of(pod, keys, self._view()))
        return own_key(pod_allocation.job_id, pod, keys) is not None if runs is None else not runs

    async def _runs_on(self, node: str, held: Placeholder) -> bool:
        """Returns True if the placeholder's own job runs on a node with the Pod's devices."""
        job = await self._slurm.job(held.job.known_id)
        return bool(_runs_on(job, node, claim_of_record(held, self._leading().rules, self._view())))

    async def _bound(self, node: str) -> Iterator[Pod]:
        items = await pods_on(self._kubernetes, node)
        return (parse_pod(item, self._translation) for item in items if self._translation.manages(item))


def _runs_on(job: Job | None, node: str, claim: JobClaim) -> bool | None:
    """Returns True if a workload's job runs on a node with the Pods' devices and cores. Returns None for
    a missing job, and for the job of another workload."""
    verdict = judge(job, claim)
    if job is None or not verdict.is_ours:
        return None
    return job.state.running and node in job.nodes and not verdict.lacks(Part.DEVICES, Part.SUSPENDED)


def _is_placed_on(pod: Pod, nodes: Sequence[str], job_id: int) -> bool:
    """Returns True if a job other than `job_id` has placed a Pod on one of the Nodes."""
    own = pod.scheduling.allocation
    return own is not None and own.node in nodes and own.job_id != job_id


def _goes_by_its_job(held: Placeholder) -> bool:
    return held.state in _BY_ITS_JOB and not held.job.over
