"""How much of Slurm's nodes is in use, by the newest reading of any part of the extender."""

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
"""What slurmctld's reason begins with where it drains a node whose Prolog failed (node_mgr.c)."""


class NodeState(StrEnum):
    """In Slurm's words, but for nodes that take no new jobs, whatever runs there."""

    IDLE = "idle"
    MIXED = "mixed"
    ALLOCATED = "allocated"
    CLOSED = "closed"


class Share(StrEnum):
    """What resources are: a job's, free, or free on a closed node."""

    ALLOCATED = "allocated"
    IDLE = "idle"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Capacity:
    """The nodes for which a Node stands, and what they have."""

    nodes: Mapping[NodeState, int] = field(default_factory=dict)
    cpus: Mapping[Share, int] = field(default_factory=dict)
    gpus: Mapping[Share, int] = field(default_factory=dict)
    memory_bytes: Mapping[Share, int] = field(default_factory=dict)
    prolog_errors: int = 0
    """How many nodes Slurm itself has drained since their Prolog failed."""
    agents: int = 0
    """On how many Nodes that are ready a node agent is at work."""
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
    """Counts it when it is asked for, once for each reading."""

    def __init__(self, newest: Callable[[], Reading], view: Callable[[], ClusterView]) -> None:
        self._newest = newest
        self._view = view
        self._counted: tuple[Reading | None, Capacity] = None, Capacity()

    def __call__(self) -> Capacity:
        newest = self._newest()
        if newest is not self._counted[0]:
            self._counted = newest, Capacity.of(newest.nodes, self._view())
        return self._counted[1]
