"""Compares the request of a job with the hardware of Slurm's nodes, and explains why a request does not
fit."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from types import MappingProxyType
from typing import NamedTuple, Self

from extender.explain.cause import Cause, Kind
from extender.explain.quantities import CPUS, MEMORY, Amount, first
from slurm_client import gres
from slurm_client.model import JobSpec, Node, Partition, Sharing


class NodeHardware(NamedTuple):
    """All features of a partition's nodes, and the maximum of each resource on a single node."""

    cpus: int = 0
    memory_mb: int = 0
    gres: Mapping[str, int] = MappingProxyType({})
    """Number of devices by name ("gpu"), and by name and type ("gpu:h100")."""
    features: frozenset[str] = frozenset()
    cpus_per_core: int = 1

    def of(self, name: str) -> int:
        """Returns the maximum of a resource on a single node."""
        return {CPUS: self.cpus, MEMORY: self.memory_mb}.get(name, self.gres.get(name, 0))

    def beside(self, other: Self) -> "NodeHardware":
        """Returns the hardware of these nodes and other nodes together."""
        return NodeHardware(
            max(self.cpus, other.cpus),
            max(self.memory_mb, other.memory_mb),
            Counter(self.gres) | Counter(other.gres),  # the maximum of each count
            self.features | other.features,
            max(self.cpus_per_core, other.cpus_per_core),
        )


def hardware(nodes: Iterable[Node]) -> dict[str, NodeHardware]:
    """Returns the hardware of nodes, by partition."""
    found: dict[str, NodeHardware] = {}
    for node in nodes:
        devices, features = gres.counts(node.gres), frozenset(node.features)
        has = NodeHardware(node.cpus, node.memory_mb, devices, features, node.cpus_per_core)
        for partition in node.partitions:
            found[partition] = found[partition].beside(has) if partition in found else has
    return found


def together(partitions: str, known: Mapping[str, NodeHardware]) -> NodeHardware | None:
    """Returns the hardware of a partition, or of a list of partitions together ("a,b"). Returns None if
    the hardware of any of the partitions is unknown."""
    names = partitions.split(",")
    if not known.keys() >= set(names):
        return None
    return reduce(NodeHardware.beside, (known[name] for name in names))


def with_whole_cores(job: JobSpec, known: Mapping[str, NodeHardware]) -> JobSpec:
    """Returns a job of packed tasks in the form that Slurm needs, by the hardware of the job's
    partition. Without a partition, all nodes count.

    Each task gets whole cores, because Slurm would let two tasks share a core. The number of nodes is at
    least the number of tasks divided by the tasks on the largest node. With topology/block, a job may
    need several blocks. If the number of nodes of such a job is too small, Slurm rejects the job (error
    2014)."""
    has = together(job.partition or "", known) or reduce(
        NodeHardware.beside, known.values(), NodeHardware()
    )
    cores = -(-job.cpus // has.cpus_per_core)
    job = replace(job, cpus=cores * has.cpus_per_core)
    most = min((has.of(name) // number for name, number in _wanted(job) if number), default=0)
    return replace(job, nodes=max(job.nodes, -(-(job.tasks or 0) // most) if most else 0))


def amounts(job: JobSpec) -> Cause:
    """Returns the requested resources of a job on its node."""
    return Cause.of(Kind.REQUESTED_AMOUNTS, of=_wanted(job), whole_node=job.shared is Sharing.NONE)


def too_large(
    job: JobSpec, partition: str, known: Mapping[str, NodeHardware], partitions: Mapping[str, Partition]
) -> Cause | None:
    """Returns a cause if a job does not fit the nodes or the limits of `partition`, or of a list of
    partitions ("a,b"). The cause names the wrong amounts, and other partitions that fit the job. Returns
    None if the job fits, or if the hardware is unknown."""
    names, has = partition.split(","), together(partition, known)
    if partitions.keys() >= set(names) and 0 < (few := _nodes(names, partitions)) < job.nodes:
        sizes = ((name, len(partitions[name].nodes)) for name in _open_to(job, names, partitions))
        others, more = first(each for each in sizes if each[1] >= job.nodes)
        return Cause.of(
            Kind.TOO_FEW_NODES, partition=partition, nodes=few, asks=job.nodes, others=others, more=more
        )
    least = min([each.min_nodes for each in map(partitions.get, names) if each], default=0)
    if job.nodes < least:
        fewer, more = first(_open_to(job, names, partitions))
        return Cause.of(
            Kind.TOO_SMALL, partition=partition, nodes=least, asks=job.nodes, others=fewer, more=more
        )
    if has is None:
        return None
    most = has if _less(job, has) else _allowed(names, known, partitions)
    less = _less(job, most)
    if not less:
        return None
    found = _of(most, less)
    larger, more = first(
        (name, _of(each, less)) for name, each in _larger(job, names, known, partitions)
    )
    if most is has:
        return Cause.of(
            Kind.TOO_LARGE, partition=partition, most=found, asks=less, others=larger, more=more
        )
    return Cause.of(
        Kind.OVER_LIMIT, partition=partition, most=found, asks=less, others=larger, more=more
    )


def _open_to(job: JobSpec, names: Collection[str], partitions: Mapping[str, Partition]) -> Iterator[str]:
    """Yields the other partitions that allow a job with so few nodes."""
    for name, each in partitions.items():
        if name not in names and each.min_nodes <= job.nodes:
            yield name


def _allowed(
    names: Iterable[str], known: Mapping[str, NodeHardware], partitions: Mapping[str, Partition]
) -> NodeHardware:
    """Returns the maximum of each resource that these partitions allow a job on a single node."""
    return reduce(NodeHardware.beside, (_limited(known[name], partitions.get(name)) for name in names))


def _larger(
    job: JobSpec,
    names: Collection[str],
    known: Mapping[str, NodeHardware],
    partitions: Mapping[str, Partition],
) -> Iterator[tuple[str, NodeHardware]]:
    """Yields the other partitions that allow the job. Each partition comes with the maximum of each
    resource on a single node."""
    for name, has in known.items():
        partition = partitions.get(name)
        allowed = _limited(has, partition)
        few = partition is not None and partition.min_nodes > job.nodes
        if name not in names and not few and not _less(job, allowed):
            yield name, allowed


def _limited(has: NodeHardware, partition: Partition | None) -> NodeHardware:
    """Returns the hardware of a partition's nodes, up to the partition's limits."""
    if partition is None:
        return has
    cpus, memory_mb = partition.max_cpus_per_node, partition.max_memory_mb
    return has._replace(
        cpus=has.cpus if cpus is None else min(cpus, has.cpus),
        memory_mb=has.memory_mb if memory_mb is None else min(memory_mb, has.memory_mb),
    )


def _of(has: NodeHardware, amounts_of: Iterable[Amount]) -> tuple[Amount, ...]:
    """Returns, for each resource in `amounts_of`, the maximum on a single node."""
    return tuple([(name, has.of(name)) for name, _ in amounts_of])


def _nodes(names: Iterable[str], partitions: Mapping[str, Partition]) -> int:
    return len({node for name in names for node in partitions[name].nodes})


def _wanted(job: JobSpec) -> tuple[Amount, ...]:
    """Returns the requests of a job on a node: CPUs, memory (MiB), and each GRES."""
    return ((CPUS, job.cpus), (MEMORY, job.memory_mb), *job.gres)


def _less(job: JobSpec, has: NodeHardware) -> tuple[Amount, ...]:
    """Returns the requested amounts that no node has."""
    return tuple([(name, number) for name, number in _wanted(job) if number > has.of(name)])
