"""Finds Pods on cores or devices of another job.

Slurm gives a core or a device to one job at a time, with two exceptions. First, a partition may share
cores (OverSubscribe). Then both jobs have the core. Second, Slurm gives the cores of a suspended job to
the next job, and lets the first job resume on the same cores (24.11, 26.05). Then a Pod and another job
compute on the same cores, and the states of both jobs are RUNNING.
"""

from collections.abc import Callable, Iterable

from extender.jobs.claim import claim_of
from extender.jobs.overlap import Unit, common, units_on
from extender.jobs.slots import nodes_by, whole_on_nodes
from extender.jobs.verdict import Part, judge
from extender.node_view.view import ClusterView
from extender.pod_request.pod import Pod
from extender.record.config import PlacementConfig
from slurm_client.model import Job
from slurm_client.protocol import Slurm
from wellknown.allocation import Allocation
from wellknown.job_key import JobIdRange


class Overlaps:
    """Finds the Pods that are in the way of a job."""

    def __init__(
        self,
        slurm: Slurm,
        view: Callable[[], ClusterView],
        report: Callable[[str, Job], None],
        ids: JobIdRange,
    ) -> None:
        """`report` passes the uid of a workload, and the job that was read, to the leader. `ids`
        are the placeholders' ids."""
        self._slurm, self._view, self._report, self._ids = slurm, view, report, ids

    async def in_the_way(self, slot: Allocation, pods: Iterable[Pod]) -> list[Pod]:
        """Returns the Pods on a core or a device of a slot (the cores and devices of a job on a Node).
        Leaves out a Pod if Slurm gives the core or the device to both jobs. Reads the jobs of Pods that
        overlap, and reports these jobs. Raises SlurmError."""
        found = list[Pod]()
        for pod in pods:
            units = units_on(pod, slot)
            if units and not units <= await self._shared(slot, pod):
                found.append(pod)
        return found

    async def _shared(self, slot: Allocation, pod: Pod) -> frozenset[Unit]:
        """Returns the cores and devices of a slot that Slurm also gives to a Pod's job. Returns an empty
        set if the job does not run, or was suspended."""
        own = pod.scheduling.allocation
        job = None if own is None else await self._slurm.job(own.job_id)
        if job is None:
            return frozenset()
        self._report(pod.workload.uid, job)
        view = self._view()
        keys = PlacementConfig(cluster=view.cluster, ids=self._ids)
        verdict = judge(job, claim_of(pod, keys, view))
        if not (job.state.running and verdict.is_ours) or verdict.has_altered(Part.SUSPENDED):
            return frozenset()
        has = whole_on_nodes(job.grant, job.id, nodes_by(view, [pod]))
        return next((units for each in has if (units := common(each, slot))), frozenset())
