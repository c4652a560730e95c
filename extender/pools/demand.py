"""How much waits in Slurm for a pool to have more nodes: pure.

A job counts if it would run with more nodes in its partition, by Slurm's reason (src/slurmctld of 24.11
and 26.05). A job does not count that is held, that waits for a time, another job, a license or a limit,
or that needs certain nodes or a reservation's. BadConstraints does not count: Slurm holds such a job
(priority 0) until a person releases it, whatever nodes come.

Slurm names a limit only for jobs that it looks at. Behind the first hundreds (bf_max_job_test), and
behind a job that waits for nodes, jobs over the same limit have "Priority". So a job without a better
reason does not count either, if a limit on the jobs of its owner holds another job back."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from extender.pools.pool import Pool
from slurm_client.model import Job, Node, Partition

_FOR_NODES = frozenset({"", "Priority", "Resources", "ReqNodeNotAvail", "NodeDown"})
"""No word yet ("None") is what Slurm says of jobs that it has not got to; behind the first hundred
(default_queue_depth) that may last. "Resources" is also said where nodes are down or drained."""
_NO_BETTER_REASON = frozenset({"", "Priority"})
_ON_ALL_JOBS = ("Grp", "MaxJobs", "PerUser", "PerAccount")
"""Parts of Slurm's words for limits of associations and QOS on the jobs of an owner together. Other
limits are on one job (MaxTRESPerJob), or on a node of a job."""
_TOO_SMALL = frozenset({"PartitionConfig", "PartitionNodeLimit"})
"""The partition has too few CPUs or nodes for a job (any job if it has none), or does not admit the job:
so the size of the partition decides."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What waits for a pool: of an array each task is a job."""

    jobs: int = 0
    nodes: int = 0
    """By Slurm's estimate, where a job asks for CPUs or GPUs and not for nodes."""
    cpus: int = 0
    gpus: int = 0

    def plus(self, job: Job, tasks: int) -> "Demand":
        """Returns the demand with so many tasks of a job."""
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
    """Returns the demand for each pool with partitions. `waiting`: pending jobs, each with its number of
    waiting tasks. `partitions` and `nodes`: all. A job counts once for each pool that it could use."""
    told = {pool.name: Demand() for pool in pools if pool.partitions}
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
                told[pool.name] = told[pool.name].plus(job, tasks)
    return told


def _owner(job: Job) -> tuple[object, ...]:
    return job.user_id, job.account, job.qos, job.partition


def _sizes(nodes: Iterable[Node]) -> defaultdict[str, tuple[int, int]]:
    """Returns how many nodes, and CPUs, each partition has."""
    sizes: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for node in nodes:
        for name in node.partitions:
            count, cpus = sizes[name]
            sizes[name] = count + 1, cpus + node.cpus
    return sizes


def _lacks_nodes(job: Job, partition: Partition | None, size: tuple[int, int]) -> bool:
    """Tells whether a job would run if this partition, which it names, had more nodes."""
    if job.held or job.reservation or job.required_nodes:
        return False
    if job.reason not in _TOO_SMALL:
        return job.reason in _FOR_NODES
    wanted, most = job.node_count or 1, partition.max_nodes if partition else None
    too_many = most is not None and wanted > most
    return not too_many and (wanted > size[0] or (job.cpus_allocated or 1) > size[1])
