"""Counts the use of Slurm's nodes, from the newest read of the nodes by any part of the extender."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from extender.node_view.slurm_nodes import Reading
from extender.node_view.view import ClusterView
from extender.telemetry.partitions import IdleNodes, gres_counts, idle_nodes
from slurm_client.model import Node
from wellknown.resources import MEBIBYTE

_PROLOG_ERROR = "Prolog error"
"""Start of slurmctld's reason for draining a node because of a failed Prolog (node_mgr.c)."""


class NodeState(StrEnum):
    """States of a node: three states of Slurm, and CLOSED. A CLOSED node takes no new jobs, whether jobs
    run there or not."""

    IDLE = "idle"
    MIXED = "mixed"
    ALLOCATED = "allocated"
    CLOSED = "closed"


class Share(StrEnum):
    """State of resources: allocated to a job, free, or free on a closed node."""

    ALLOCATED = "allocated"
    IDLE = "idle"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Capacity:
    """Number and resources of the nodes with a Kubernetes Node."""

    nodes: Mapping[NodeState, int] = field(default_factory=dict)
    cpus: Mapping[Share, int] = field(default_factory=dict)
    gpus: Mapping[Share, int] = field(default_factory=dict)
    memory_bytes: Mapping[Share, int] = field(default_factory=dict)
    prolog_errors: int = 0
    """Number of nodes that Slurm itself drained because of a failed Prolog."""
    agents: int = 0
    """Number of ready Nodes with a node agent."""
    idle: IdleNodes = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[Node], view: ClusterView) -> "Capacity":
        nodes = tuple(nodes)
        states = Counter[NodeState]()
        cpus, gpus, memory = Counter[Share](), Counter[Share](), Counter[Share]()
        errors = 0
        for node in nodes:
            if view.node_of(node.name) is None:
                continue
            states[_state(node)] += 1
            left = Share.IDLE if node.schedulable else Share.CLOSED
            _divide(cpus, left, node.cpus, node.cpus_allocated)
            _divide(gpus, left, *(gres_counts(text)["gpu"] for text in (node.gres, node.gres_used)))
            memory_mb = node.memory_mb, node.memory_allocated_mb
            _divide(memory, left, *(MEBIBYTE * amount for amount in memory_mb))
            errors += node.reason.startswith(_PROLOG_ERROR)
        agents = sum(node.has_agent and not node.away for node in view.nodes.values())
        return cls(states, cpus, gpus, memory, errors, agents, idle_nodes(nodes, view))


def _state(node: Node) -> NodeState:
    if not node.schedulable:
        return NodeState.CLOSED
    if not node.cpus_allocated:
        return NodeState.IDLE
    return NodeState.MIXED if node.cpus_allocated < node.cpus else NodeState.ALLOCATED


def _divide(shares: Counter[Share], left: Share, total: int, allocated: int) -> None:
    shares[Share.ALLOCATED] += allocated
    shares[left] += max(0, total - allocated)


class CapacityNow:
    """Counts the capacity at the first call after each reading of Slurm's nodes, and keeps the result
    until the next reading."""

    def __init__(self, newest: Callable[[], Reading], view: Callable[[], ClusterView]) -> None:
        self._newest = newest
        self._view = view
        self._counted: tuple[Reading | None, Capacity] = None, Capacity()

    def __call__(self) -> Capacity:
        newest = self._newest()
        if newest is not self._counted[0]:
            self._counted = newest, Capacity.of(newest.nodes, self._view())
        return self._counted[1]
