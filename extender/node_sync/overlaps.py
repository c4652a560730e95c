"""Pods, and containers of deleted Pods, on cores or devices of another job.

Slurm gives a core or a device to one job at a time, with two exceptions. A partition may share cores
(OverSubscribe): then both jobs have the core. Slurm gives the cores of a suspended job to the next job,
and lets the first job resume on the same cores (24.11, 26.05): then a Pod and another job compute on the
same cores, and the states of both jobs are RUNNING. The containers of a Pod that was deleted by force
may run on after the end of the Pod's job.
"""

from collections.abc import Callable, Iterable

from extender.jobs.claim import claim_of
from extender.jobs.overlap import Unit, common, units_on
from extender.jobs.slots import nodes_by, slots, whole_on
from extender.jobs.verdict import judge
from extender.node_view.lingering_notes import LingeringNotes
from extender.node_view.view import ClusterView
from extender.pod_request.pod import Pod
from extender.record.config import PlacementConfig
from slurm_client.model import Job
from slurm_client.protocol import Slurm
from wellknown.allocation import Allocation
from wellknown.job_key import JobIdRange


class Overlaps:
    """Finds the Pods and the containers of deleted Pods that are in the way of a job."""

    def __init__(
        self,
        slurm: Slurm,
        view: Callable[[], ClusterView],
        report: Callable[[str, Job], None],
        ids: JobIdRange,
        notes: LingeringNotes,
    ) -> None:
        """`report` tells the leader of a workload, by its uid, and of the job that was read. `ids` are
        the placeholders' ids."""
        self._slurm, self._view, self._report, self._ids = slurm, view, report, ids
        self._notes = notes

    async def in_the_way(self, slot: Allocation, pods: Iterable[Pod]) -> list[Pod]:
        """Returns the Pods on a core or a device of a slot, unless Slurm gives the core or the device to
        both jobs. Reads the jobs of Pods that overlap, and reports these jobs. Raises SlurmError."""
        found = list[Pod]()
        for pod in pods:
            units = units_on(pod, slot)
            if units and not units <= await self._shared(slot, pod):
                found.append(pod)
        return found

    def may_linger(self, node: str) -> bool:
        """Returns True if containers of deleted Pods may run on a Node, with or without their jobs."""
        return bool(self._notes.on(node))

    async def lingering(self, node: str) -> list[str]:
        """Returns the deleted Pods (namespace/name) whose containers may run on a Node without their
        job, or on cores or devices that the job may have lost. Raises SlurmError."""
        found = list[str]()
        for containers in self._notes.on(node):
            job = await self._slurm.job(containers.job_id)
            if job is None or not self._has_kept(job, containers.slot(node)):
                found.append(containers.pod)
        return found

    def _has_kept(self, job: Job, slot: Allocation) -> bool:
        """Returns True if a job has had the cores and devices of a slot since its first start."""
        if not job.state.holds_nodes or job.was_suspended or job.restart_count:
            return False
        named = (name for name in job.nodes if self._view().names_it(slot.node, name))
        has = (whole_on(name, job.grant, job.id, slot.node) for name in named)
        return any(one is not None and common(slot, slot) <= common(slot, one) for one in has)

    async def _shared(self, slot: Allocation, pod: Pod) -> frozenset[Unit]:
        """Returns the units of a slot that Slurm gives to a Pod's job, too: none if the job does not
        run, or was suspended."""
        own = pod.scheduling.allocation
        job = None if own is None else await self._slurm.job(own.job_id)
        if job is None:
            return frozenset()
        self._report(pod.workload.uid, job)
        view = self._view()
        keys = PlacementConfig(cluster=view.cluster, ids=self._ids)
        if job.was_suspended or not (
            job.state.running and judge(job, claim_of(pod, keys, view)).is_ours
        ):
            return frozenset()
        has = slots(job.grant, job.id, 1, nodes_by(view, [pod]))
        return next((units for each in has if (units := common(each, slot))), frozenset())
