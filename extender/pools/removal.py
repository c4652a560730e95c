"""Decides when a pool's node is removed from Slurm after the Node is gone from Kubernetes. This module
is pure.

A deleted Node may soon return, because the kubelet registers the Node again. So a node with a silent
slurmd is set DOWN after _DOWN_S, and deleted after _DELETE_S. If a pool has drained the node for good,
the node is already deleted after _DOWN_S.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from extender.node_sync.drains import Holder, PoolCause, holder_of, pool_reason, too_many
from extender.pools.reserved import Reservations, any_would_lose
from slurm_client.model import Node as SlurmNode
from wellknown.slurmd_pod import MARK

_DOWN_S = 60.0
_DELETE_S = 600.0


@dataclass(frozen=True, slots=True)
class Removal:
    """An order to set a node DOWN for a reason, or an order to delete a node. An order to delete has no
    reason."""

    node: str
    reason: str = ""


def marked(nodes: Iterable[SlurmNode]) -> list[SlurmNode]:
    """Returns the nodes that slurmd Pods have created."""
    return [node for node in nodes if node.dynamic and node.instance_type.startswith(MARK)]


def believed(gone: Collection[SlurmNode], total: int) -> list[SlurmNode]:
    """Returns the nodes that may be removed. `gone` has the nodes without a Node. If too many of all
    `total` nodes lose their Nodes at once, returns only nodes that a pool has drained for good. Nodes
    drained for good do not count as lost, because an autoscaler may remove any number of Nodes."""
    left = [node for node in gone if _has_left(node)]
    return left if too_many(len(gone) - len(left), total - len(left)) else list(gone)


def silent(node: SlurmNode) -> bool:
    """Returns True if no slurmd serves a node. If a slurmd serves, the Node may have been deleted
    by mistake."""
    return not node.responding or "DOWN" in node.states


def decide(
    gone: Iterable[SlurmNode], since: Mapping[str, float], now: float, reservations: Reservations
) -> list[Removal]:
    """Returns orders about nodes without Nodes. `since` has the time since which each node is silent and
    without a Node."""
    orders = []
    for node in filter(silent, gone):
        age = now - since.get(node.name, now)
        left = _has_left(node)
        reserved = "RESERVED" in node.states or any_would_lose(reservations.get(node.name, ()))
        given_up = "DOWN" in node.states and holder_of(node) is Holder.POOL
        if age >= (_DOWN_S if left else _DELETE_S) and not (node.has_jobs or reserved):
            orders.append(Removal(node.name))
        elif age >= _DOWN_S and not (left or given_up):
            orders.append(Removal(node.name, _reason(node)))
    return orders


def _has_left(node: SlurmNode) -> bool:
    """Returns True if a pool has drained an empty node for good. The test searches for the cause inside
    the reason, because slurmctld may append text to the reason."""
    drained = "DRAIN" in node.states and holder_of(node) is Holder.POOL
    for_good = PoolCause.LEAVES in node.reason or PoolCause.CORDONED in node.reason
    return drained and for_good and not node.has_jobs


def _reason(node: SlurmNode) -> str:
    return pool_reason(node.instance_type.removeprefix(MARK), PoolCause.GONE)
