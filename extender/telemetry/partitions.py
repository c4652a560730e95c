"""Counts the Pods that Slurm could start now, by partition. Such a Pod waits for nodes, and fits on an
idle node.

This module uses the newest reads of nodes. A Pod does not count if this module cannot decide whether a
node fits. The possible reasons are constraints other than a list of features, required nodes, several
nodes, and a reservation."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, Self

from extender.node_view.view import ClusterView
from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client import gres, hostlist
from slurm_client.model import Node

_FOR_NODES = frozenset({"", "None", "Resources", "Priority"})
"""Slurm's reasons of jobs that wait only for nodes."""
_PLANNED = frozenset({"PLANNED", "RESERVED"})
"""States of nodes that Slurm keeps for other jobs."""
_FEATURES = re.compile(r"(?:[\w.:-]+(?:&[\w.:-]+)*)?", re.ASCII)

gres_counts = lru_cache(4096)(gres.counts)  # thousands of nodes have only a few different texts


@lru_cache(64)
def _names(nodes: tuple[str, ...]) -> frozenset[str]:
    return frozenset(hostlist.names(nodes))


class Wanted(NamedTuple):
    """Request of a Pod in Slurm's queue. Many Pods have the same request."""

    partition: str | None
    cpus: int
    memory_mb: int
    gres: tuple[tuple[str, int], ...]
    features: str
    """Required features: "a&b"."""
    excluded: tuple[str, ...]
    """Excluded nodes, in the format of `Exclusion.nodes`."""

    @classmethod
    def of(cls, record: Placeholder) -> Self | None:
        """Returns the request; None if the Pod is not in Slurm's queue, or waits for something else than
        an idle node."""
        if record.state is not State.QUEUED or _reason(record) not in _FOR_NODES:
            return None
        job, features = record.request.job, record.request.job.constraints or ""
        if job.required_nodes or job.reservation or job.nodes > 1 or not _FEATURES.fullmatch(features):
            return None
        return cls(job.partition, job.cpus, job.memory_mb, job.gres, features, record.job.asked.excluded)

    def fits(self, has: "KindOfNode") -> bool:
        """Returns True if an idle node of this kind has the requested resources and features."""
        return (
            self.cpus <= has.cpus
            and self.memory_mb <= has.memory_mb
            and has.features.issuperset(filter(None, self.features.split("&")))
            and all(count <= gres_counts(has.gres)[name] for name, count in self.gres)
        )


def _reason(record: Placeholder) -> str:
    return record.cause.reason if record.cause is not None else ""


class KindOfNode(NamedTuple):
    """The resources of a node that Slurm can give to jobs, and the node's features."""

    cpus: int
    memory_mb: int
    gres: str
    features: frozenset[str]

    @classmethod
    def of(cls, node: Node) -> Self:
        return cls(
            node.cpus - node.cpus_reserved,
            node.memory_mb - node.memory_reserved_mb,
            node.gres,
            frozenset(node.features),
        )


IdleNodes = Mapping[str, Mapping[KindOfNode, frozenset[str]]]
"""Names of completely idle nodes by partition and kind, for partitions that start jobs."""


def idle_nodes(nodes: Iterable[Node], view: ClusterView) -> IdleNodes:
    """Returns the idle nodes with a Kubernetes Node."""
    found: defaultdict[str, defaultdict[KindOfNode, set[str]]] = defaultdict(lambda: defaultdict(set))
    up = {name for name, partition in view.partitions.items() if partition.up}
    for node in nodes:
        idle = node.schedulable and not node.cpus_allocated and not node.states & _PLANNED
        if idle and view.node_of(node.name) is not None:
            for partition in up.intersection(node.partitions):
                found[partition][KindOfNode.of(node)].add(node.name)
    return {
        partition: {has: frozenset(names) for has, names in by_kind.items()}
        for partition, by_kind in found.items()
    }


def startable(wanted: Mapping[Wanted, int], idle: IdleNodes, view: ClusterView) -> Counter[str]:
    """Returns the number of Pods that could start in each partition. `wanted`: number of Pods for each
    request."""
    found: Counter[str] = Counter()
    for each, count in wanted.items():
        for partition in partitions_of(each.partition, view):
            if _has_node(each, idle.get(partition, {})):
                found[partition] += count
    return found


def _has_node(wanted: Wanted, idle: Mapping[KindOfNode, frozenset[str]]) -> bool:
    return any(wanted.fits(has) and not names <= _names(wanted.excluded) for has, names in idle.items())


def partitions_of(asked: str | None, view: ClusterView) -> Iterator[str]:
    """Yields the known partitions in a request. The metrics' label has no other values."""
    for name in dict.fromkeys(view.partition_name(asked).split(",")):
        if name in view.partitions:
            yield name
