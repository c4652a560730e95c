"""The hardware of Slurm's nodes and the requests of jobs in the same words, for messages."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from slurm_client import gres
from slurm_client.model import JobSpec, Node, Partition, Sharing

_CPUS: Final = "CPUs"
_MEMORY: Final = "memory"
_MOST_NAMED: Final = 10


class NodeHardware(NamedTuple):
    """All features of a partition's nodes, and of each resource the most that one of the nodes has."""

    cpus: int = 0
    memory_mb: int = 0
    gres: Mapping[str, int] = MappingProxyType({})
    """Counts by name, and by name and type."""
    features: frozenset[str] = frozenset()

    def of(self, name: str) -> int:
        """Returns the most that one node has of a resource."""
        return {_CPUS: self.cpus, _MEMORY: self.memory_mb}.get(name, self.gres.get(name, 0))

    def beside(self, other: Self) -> "NodeHardware":
        """Returns the hardware of these nodes and others together."""
        return NodeHardware(
            max(self.cpus, other.cpus),
            max(self.memory_mb, other.memory_mb),
            Counter(self.gres) | Counter(other.gres),  # the larger of each
            self.features | other.features,
        )


def hardware(nodes: Iterable[Node]) -> dict[str, NodeHardware]:
    """Returns the hardware of nodes, by partition."""
    found: dict[str, NodeHardware] = {}
    for node in nodes:
        has = NodeHardware(node.cpus, node.memory_mb, gres.counts(node.gres), frozenset(node.features))
        for partition in node.partitions:
            found[partition] = found[partition].beside(has) if partition in found else has
    return found


def together(partitions: str, known: Mapping[str, NodeHardware]) -> NodeHardware | None:
    """Returns the hardware of a partition, or of a list ("a,b"); None if not known for each."""
    names = partitions.split(",")
    if not known.keys() >= set(names):
        return None
    return reduce(NodeHardware.beside, (known[name] for name in names))


def amounts(job: JobSpec) -> str:
    """Returns what a job asks for on its node: "8 CPUs, 8 GiB, 2 GPUs (h100)"."""
    whole = "a whole node with " if job.shared is Sharing.NONE else ""
    devices = (_devices(name, count) for name, count in job.gres)
    return whole + ", ".join([_count(job.cpus, "CPU"), _memory(job.memory_mb), *devices])


def too_large(
    job: JobSpec, partition: str, known: Mapping[str, NodeHardware], partitions: Mapping[str, Partition]
) -> str:
    """Returns in which resources a job is too large for every node of a partition, or of a list of
    partitions, and which other partitions fit; empty if that is not known, or if the job fits."""
    names, has = partition.split(","), together(partition, known)
    if partitions.keys() >= set(names) and 0 < (few := _nodes(names, partitions)) < job.nodes:
        others = {name: len(each.nodes) for name, each in partitions.items() if name not in names}
        enough = (f"{name} ({nodes})" for name, nodes in others.items() if nodes >= job.nodes)
        where = f"partition {partition} has {_count(few, 'node')}"
        return _with_others(f"{where}; the Pod asks for {job.nodes}", enough)
    less = [] if has is None else _less(job, has)
    if has is None or not less:
        return ""
    most = ", ".join(_amount(name, has.of(name)) for name in less)
    asks = _asked(less, dict(_wanted(job)))
    fits = ((name, each) for name, each in known.items() if name not in names and not _less(job, each))
    enough = (f"{name} ({_asked(less, {n: each.of(n) for n in less})})" for name, each in fits)
    where = f"no node of partition {partition} has more than {most}"
    return _with_others(f"{where}; the Pod asks for {asks}", enough)


def listed(names: Iterable[str]) -> str:
    """Returns the first of these names, and how many more there are."""
    all_of_them = [*names]
    more = len(all_of_them) - _MOST_NAMED
    return ", ".join(all_of_them[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _with_others(cause: str, partitions: Iterable[str]) -> str:
    others = listed(partitions)
    return f"{cause}. Other partitions: {others}" if others else cause


def _nodes(names: Iterable[str], partitions: Mapping[str, Partition]) -> int:
    return len({node for name in names for node in partitions[name].nodes})


def _wanted(job: JobSpec) -> tuple[tuple[str, int], ...]:
    """Returns what a job asks for on a node: of CPUs, of memory (MiB), of each GRES."""
    return ((_CPUS, job.cpus), (_MEMORY, job.memory_mb), *job.gres)


def _less(job: JobSpec, has: NodeHardware) -> list[str]:
    """Returns the resources of which no node has as much as a job asks for."""
    return [name for name, count in _wanted(job) if count > has.of(name)]


def _asked(names: Sequence[str], amounts_of: Mapping[str, int]) -> str:
    """Returns amounts after a text that has named the resources: a single count stands alone."""
    if len(names) == 1 and names[0] != _MEMORY:
        return str(amounts_of[names[0]])
    return ", ".join(_amount(name, amounts_of[name]) for name in names)


def _amount(name: str, amount: int) -> str:
    if name == _CPUS:
        return _count(amount, "CPU")
    return _memory(amount) if name == _MEMORY else _devices(name, amount)


def _memory(mebibytes: int) -> str:
    """Returns an amount in GiB where that is exact: two different amounts must not read the same."""
    exact = mebibytes >= 1024 and 10 * mebibytes % 1024 == 0
    return f"{mebibytes / 1024:g} GiB" if exact else f"{mebibytes} MiB"


def _devices(name: str, count: int) -> str:
    kind, _, model = name.partition(":")
    what = _count(count, "GPU") if kind == "gpu" else f"{count} of the GRES {kind}"
    return f"{what} ({model})" if model else what


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
