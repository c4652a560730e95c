"""Compares a job that was read for /bind with the Pod, and finds the Pod's slot in the job."""

from dataclasses import dataclass, field, replace

from extender.explain.sentences import sentence
from extender.jobs.claim import JobClaim
from extender.jobs.slots import in_topology, nodes_by, slots
from extender.jobs.verdict import judge
from extender.node_view.view import ClusterView
from extender.pod_request.job_request import without_pod
from extender.pod_request.pod import Pod
from extender.pod_request.workload import Workload
from extender.record.config import PlacementConfig
from slurm_client.model import Job, JobSpec
from wellknown.allocation import Allocation


class NotBound(Exception):
    """The Pod was not bound. kube-scheduler's Event on the Pod has the message."""


@dataclass(eq=False, slots=True)
class JobAsRead:
    """A job, as one read found the job. The Pods of a gang share a read. Their requests are alike, so
    the job is judged and divided once for all of them."""

    job: Job | None
    _slots: dict[tuple[Workload, JobSpec, int], tuple[Allocation, ...]] = field(default_factory=dict)

    def slot(self, pod: Pod, node: str, view: ClusterView, rules: PlacementConfig) -> Allocation:
        """Returns the allocation that Slurm granted to a Pod on a Node. Raises NotBound if the Pod has
        no valid allocation there."""
        job = self.job
        if job is None or not job.state.running:
            raise NotBound(f"Slurm job {pod.scheduling.job_id} is not running")
        asked = pod.workload.request([pod.request]).job
        key = pod.workload, without_pod(asked), pod.scheduling.attempt
        has = self._slots.get(key)
        if has is None:
            has = self._slots[key] = _slots_of(job, pod, asked, view, rules)
        there = [slot for slot in has if slot.node == node]
        own = next(
            (slot for slot in there if len(there) == 1 or slot == pod.scheduling.allocation), None
        )
        if own is None:
            no_slot = "has no slot for this Pod" if there else "does not run"
            raise NotBound(f"Slurm job {job.id} {no_slot} on {node}")
        on_pod = pod.scheduling.allocation
        return own if on_pod is None else replace(own, rank=on_pod.rank)


def _slots_of(
    job: Job, pod: Pod, asked: JobSpec, view: ClusterView, rules: PlacementConfig
) -> tuple[Allocation, ...]:
    """Returns the slots of a Pod's job. Raises NotBound if the job is not as the Pod requests."""
    attempt, cluster = pod.scheduling.attempt, rules.cluster
    claim = JobClaim(cluster=cluster, workload=pod.workload, ids=rules.ids, attempt=attempt, view=view)
    verdict = judge(job, claim, asked)
    if not verdict.is_ours:
        raise NotBound(f"Slurm job {job.id} is not this Pod's placeholder")
    lacks = verdict.lacks()
    if lacks:
        found = "; ".join(map(sentence, lacks))
        raise NotBound(f"Slurm job {job.id} differs from the Pod's request: {found}")
    grant = in_topology(job.grant, view)
    return tuple(slots(grant, job.id, asked, pod.workload.size, nodes_by(view)))
