"""Counts the pending demand of a pool: the jobs in Slurm that wait for more nodes. This module is pure.

Slurm reports for each pending job the reason why the job waits. A job counts if this reason shows that
more nodes in the partition would start the job (src/slurmctld of 24.11 and 26.05). Held jobs do not
count. Jobs that wait for a time, another job, a license or a limit do not count. Jobs that need certain
nodes or a reservation do not count either. Jobs with BadConstraints do not count, because more nodes
change nothing: Slurm holds such a job (priority 0) until a person releases the job.

Slurm reports a limit as the reason only for jobs that the scheduler has tested. The scheduler does not
test jobs after the first hundreds (bf_max_job_test), or jobs after a job that waits for nodes. Such jobs
have the reason "Priority", even if a limit delays the jobs. So a job without a better reason does not
count if a limit on all jobs of the same owner delays another job.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from extender.pools.pool import Pool
from slurm_client.model import Job, Node, Partition

_FOR_NODES = frozenset({"", "Priority", "Resources", "ReqNodeNotAvail", "NodeDown"})
"""Reasons of jobs that wait for nodes. Slurm reports no reason ("None") for jobs that the scheduler has
not tested. Jobs after the first hundred (default_queue_depth) may stay without a reason for long. Slurm
also reports "Resources" if nodes are down or drained."""
_NO_BETTER_REASON = frozenset({"", "Priority"})
_ON_ALL_JOBS = ("Grp", "MaxJobs", "PerUser", "PerAccount")
"""Slurm's reasons contain these parts if a limit of an association or QOS applies to all jobs of an
owner together. Other limits apply to one job (MaxTRESPerJob), or to one node of a job."""
_TOO_SMALL = frozenset({"PartitionConfig", "PartitionNodeLimit"})
"""Reasons of two kinds of jobs: jobs that need more CPUs or nodes than the partition has, and jobs that
the partition does not admit. `_lacks_nodes` compares a job with the size of the partition, to
distinguish the two kinds. An empty partition is too small for any job."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Pending demand of a pool. Each task of an array is a job."""

    jobs: int = 0
    nodes: int = 0
    """Number of nodes: Slurm's estimate if a job requests CPUs or GPUs instead of nodes."""
    cpus: int = 0
    gpus: int = 0

    def plus(self, job: Job, tasks: int) -> "Demand":
        """Returns the demand plus `tasks` tasks of a job."""
        return Demand(
            self.jobs + tasks,
            self.nodes + tasks * (job.node_count or 1),
            self.cpus + tasks * (job.cpus_allocated or 1),
            self.gpus + tasks * job.gpus,
        )


def demand(
    pools: Sequence[Pool],
    waiting: Iterable[tuple[Job, int]],
    partitions: Mapping[str, Partition],
    nodes: Iterable[Node],
) -> dict[str, Demand]:
    """Returns the demand for each pool with partitions. `waiting` has the pending jobs, each with the
    number of waiting tasks. `partitions` and `nodes` are all partitions and nodes in Slurm. A job counts
    once for each pool that the job could use."""
    demands = {pool.name: Demand() for pool in pools if pool.partitions}
    sizes, jobs = _sizes(nodes), tuple(waiting)
    held_back = {_owner(job) for job, _ in jobs if any(part in job.reason for part in _ON_ALL_JOBS)}
    for job, waits in jobs:
        if job.reason in _NO_BETTER_REASON and _owner(job) in held_back:
            continue
        tasks = waits if job.more_tasks is None else min(waits, job.more_tasks)
        lacking = [
            name
            for name in job.partition.split(",")
            if _lacks_nodes(job, partitions.get(name), sizes[name])
        ]
        for pool in pools:
            if tasks and not pool.partitions.isdisjoint(lacking):
                demands[pool.name] = demands[pool.name].plus(job, tasks)
    return demands


def _owner(job: Job) -> tuple[object, ...]:
    return job.user_id, job.account, job.qos, job.partition


def _sizes(nodes: Iterable[Node]) -> defaultdict[str, tuple[int, int]]:
    """Returns the number of nodes and of CPUs in each partition."""
    sizes: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for node in nodes:
        for name in node.partitions:
            count, cpus = sizes[name]
            sizes[name] = count + 1, cpus + node.cpus
    return sizes


def _lacks_nodes(job: Job, partition: Partition | None, size: tuple[int, int]) -> bool:
    """Returns True if a job would run if this partition had more nodes. The partition is a partition
    that the job names."""
    if job.held or job.reservation or job.required_nodes:
        return False
    if job.reason not in _TOO_SMALL:
        return job.reason in _FOR_NODES
    wanted, most = job.node_count or 1, partition.max_nodes if partition else None
    too_many = most is not None and wanted > most
    return not too_many and (wanted > size[0] or (job.cpus_allocated or 1) > size[1])
