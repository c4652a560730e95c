"""How much waits in Slurm for a pool to have more nodes: pure.

A job counts that would run if its partition had more nodes, by Slurm's word for why it waits (what
src/slurmctld of 24.11 and 26.05 means by it). A job does not count that is held, that waits for a time,
another job, a license or a limit, or that may run on certain nodes alone: those that it names, or a
reservation's. BadConstraints does not count either, though it is said of nodes that are not good enough:
Slurm holds such a job (its priority is 0) until a person releases it, whatever nodes come.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from extender.pools.pool import Pool
from slurm_client.model import Job, Node, Partition

_FOR_NODES = frozenset({"", "Priority", "Resources", "ReqNodeNotAvail", "NodeDown"})
"""No word yet ("None") is what Slurm says of jobs that it has not got to; behind the first hundred
(default_queue_depth) that may last. "Resources" is also said where nodes are down or drained."""
_TOO_SMALL = frozenset({"PartitionConfig", "PartitionNodeLimit"})
"""What Slurm says where a partition has fewer CPUs, or fewer nodes, than a job asks for: of every job
where it has no nodes yet. It says the same where the partition does not admit the job, or not with so
many nodes, so its size is looked at."""


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
    """Returns the demand for each pool that names partitions. `waiting` are pending jobs, each with how
    many tasks of it wait; `partitions` and `nodes` are all that Slurm has. A job counts once for each
    pool of whose partitions it names any."""
    told = {pool.name: Demand() for pool in pools if pool.partitions}
    sizes = _sizes(nodes)
    for job, waits in waiting:
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
