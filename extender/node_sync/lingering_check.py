"""Checks whether containers that may outlive their Pods still have the cores and devices of their job.

Until the job of such containers ends, Slurm gives their cores and devices to no other job. The notes on
Nodes name the job of the containers (`node_view.lingering_notes`).
"""

from collections.abc import Callable

from extender.jobs.overlap import common, covers
from extender.jobs.slots import whole_on
from extender.node_view.job_states import JobStates
from extender.node_view.lingering_notes import LingeringNotes
from extender.node_view.read_jobs import read_all
from extender.node_view.view import ClusterView
from slurm_client.model import Job
from slurm_client.protocol import Slurm
from wellknown.allocation import Allocation


class LingeringCheck:
    """Finds the deleted Pods whose containers are in the way of jobs and Pods on a Node."""

    def __init__(self, slurm: Slurm, view: Callable[[], ClusterView], notes: LingeringNotes) -> None:
        self._slurm, self._view, self._notes = slurm, view, notes
        self._states = JobStates(slurm)
        self._ended: dict[str, frozenset[int]] = {}
        """The ended jobs of the notes on each Node. An ended job never holds nodes again. But Slurm uses
        ids again, so a job is forgotten with the last note about the job."""

    def may_linger(self, node: str) -> bool:
        """Returns True if containers of deleted Pods may run on a Node, with or without their jobs."""
        return bool(self._notes.on(node))

    async def in_the_way(self, node: str, slurm_node: str | None = None) -> list[str]:
        """Returns the deleted Pods (namespace/name) that may be in the way of jobs on a Node. The
        containers of such a Pod may still run. The job of such a Pod no longer holds nodes, or may have
        lost the containers' cores or devices. `slurm_node` is the name of the Node in Slurm. If None,
        the name comes from the view. Raises SlurmError."""
        notes = self._notes.on(node)
        if not notes:  # as nearly always
            self._ended.pop(node, None)
            return []
        known = self._view().nodes.get(node)
        name = slurm_node or (known.slurm_name if known is not None else "")
        jobs = await self._holding(node, {each.job_id for each in notes})
        lost = (each for each in notes if not _has_kept(jobs.get(each.job_id), name, each.slot(node)))
        return [each.pod for each in lost]

    def in_its_slot(self, allocation: Allocation) -> list[str]:
        """Returns the deleted Pods of the allocation's own job whose containers may still have cores or
        devices of the allocation. The Pod of the allocation then replaces a member of a gang."""
        notes = (each for each in self._notes.on(allocation.node) if each.job_id == allocation.job_id)
        return [each.pod for each in notes if common(each.slot(allocation.node), allocation)]

    async def _holding(self, node: str, job_ids: set[int]) -> dict[int, Job]:
        """Returns the jobs among `job_ids` that hold nodes. One call reads the states of all these
        jobs."""
        ended = self._ended.get(node, frozenset()) & job_ids
        states = await self._states.of(job_ids - ended)
        ended |= {each for each in job_ids if each in states and states[each].ended}
        self._ended[node] = ended
        holding = [each for each in job_ids if each in states and states[each].holds_nodes]
        return {job.id: job for job in await read_all(holding, self._slurm)} if holding else {}


def _has_kept(job: Job | None, slurm_node: str, slot: Allocation) -> bool:
    """Returns True if a job has had the cores and devices of a slot since its first start."""
    if job is None or not job.state.holds_nodes or job.was_suspended or job.restart_count:
        return False
    whole = whole_on(slurm_node, job.grant, job.id, slot.node)
    return whole is not None and covers(whole, slot)
