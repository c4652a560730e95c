"""The equipment of Slurm's nodes and the requests of jobs in the same words, for messages about
requests that are too large."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from types import MappingProxyType
from typing import NamedTuple, Self

from slurm_client import gres
from slurm_client.model import JobSpec, Node, Sharing


class Equipment(NamedTuple):
    """The equipment of a partition's nodes: all their features, and of everything else the most that
    one node has, which is not always the same node."""

    cpus: int = 0
    memory_mb: int = 0
    gres: Mapping[str, int] = MappingProxyType({})
    """Counts by name, and by name and type."""
    features: frozenset[str] = frozenset()

    def beside(self, other: Self) -> "Equipment":
        """Returns the equipment of these nodes and others together."""
        return Equipment(
            max(self.cpus, other.cpus),
            max(self.memory_mb, other.memory_mb),
            Counter(self.gres) | Counter(other.gres),  # the larger of each
            self.features | other.features,
        )


def equipment(nodes: Iterable[Node]) -> dict[str, Equipment]:
    """Returns the equipment of nodes, by partition."""
    found: dict[str, Equipment] = {}
    for node in nodes:
        has = Equipment(node.cpus, node.memory_mb, gres.counts(node.gres), frozenset(node.features))
        for partition in node.partitions:
            found[partition] = found[partition].beside(has) if partition in found else has
    return found


def together(partitions: str, known: Mapping[str, Equipment]) -> Equipment | None:
    """Returns the equipment of a partition's nodes, or of a list of partitions ("a,b"); None where it
    is not known for each."""
    names = partitions.split(",")
    if not known.keys() >= set(names):
        return None
    return reduce(Equipment.beside, (known[name] for name in names))


def amounts(job: JobSpec) -> str:
    """Returns what a job asks for on its node: "8 CPUs, 8 GiB, 2 GPUs (h100)"."""
    whole = "a whole node with " if job.shared is Sharing.NONE else ""
    devices = (_devices(name, count) for name, count in job.gres)
    return whole + ", ".join([_count(job.cpus, "CPU"), _memory(job.memory_mb), *devices])


def exceeded(job: JobSpec, has: Equipment) -> str:
    """Returns the most that one node has of each resource of which the job asks for more."""
    return ", ".join(_exceeded(job, has))


def _exceeded(job: JobSpec, has: Equipment) -> Iterator[str]:
    if job.cpus > has.cpus:
        yield _count(has.cpus, "CPU")
    if job.memory_mb > has.memory_mb:
        yield _memory(has.memory_mb)
    for name, count in job.gres:
        if count > (most := has.gres.get(name, 0)):
            yield _devices(name, most)


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
