"""Pods that run on cores or devices of another job.

Slurm gives a core or a device to one job at a time, with two exceptions. A partition may share cores
(OverSubscribe), and then both jobs have the core. A suspended job loses its cores to the next job, and
gets the cores back at once when its owner resumes the job (24.11, 26.05): then a Pod and another job
compute on the same cores, and the states of both jobs are RUNNING.
"""

from collections.abc import Callable, Iterable

from extender.jobs.claim import claim_of
from extender.jobs.overlap import Unit, common
from extender.jobs.slots import nodes_by, slots
from extender.jobs.verdict import Part, judge
from extender.node_view.view import ClusterView
from extender.pod_request.pod import Pod
from extender.record.config import PlacementConfig
from slurm_client.protocol import Slurm
from wellknown.allocation import Allocation
from wellknown.job_key import JobIdRange


class Overlaps:
    """Finds the Pods in the way of a slot."""

    def __init__(
        self,
        slurm: Slurm,
        view: Callable[[], ClusterView],
        read_now: Callable[[int], None],
        ids: JobIdRange,
    ) -> None:
        """`read_now` makes the leader read a job. `ids` are the placeholders' ids."""
        self._slurm, self._view, self._read_now, self._ids = slurm, view, read_now, ids

    async def with_slot(self, slot: Allocation, pods: Iterable[Pod]) -> list[Pod]:
        """Returns the Pods on a core or a device of a slot, unless Slurm gives the core or the device to
        both jobs. Reads the jobs of Pods that overlap. Raises SlurmError."""
        found = list[Pod]()
        for pod in pods:
            own = pod.scheduling.allocation
            if own is None or own.job_id == slot.job_id or not common(own, slot):
                continue
            if not common(own, slot) <= await self._shared(slot, pod, own):
                self._read_now(own.job_id)
                found.append(pod)
        return found

    async def _shared(self, slot: Allocation, pod: Pod, own: Allocation) -> frozenset[Unit]:
        """Returns the units of a slot that Slurm gives to a Pod's job, too: none if the job does not
        run, or was suspended."""
        job, view = await self._slurm.job(own.job_id), self._view()
        keys = PlacementConfig(cluster=view.cluster, ids=self._ids)
        verdict = judge(job, claim_of(pod, keys, view))
        if job is None or not verdict.is_ours or verdict.has_altered(Part.SUSPENDED):
            return frozenset()
        has = slots(job.grant, job.id, 1, nodes_by(view, [pod])) if job.state.running else ()
        there = (common(each, slot) for each in has if each.node == own.node)
        return next(there, frozenset())
