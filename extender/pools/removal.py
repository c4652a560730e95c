"""What becomes of a pool's node in Slurm whose Node is gone from Kubernetes: pure.

A Node may come back in a moment (its kubelet makes it again). So a node whose slurmd is silent is set
DOWN after _DOWN_S, and deleted after _DELETE_S; a node that slurmd has left in order is deleted
sooner."""

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
    """An order: set a node DOWN for a reason, or delete the node (no reason)."""

    node: str
    reason: str = ""


def marked(nodes: Iterable[SlurmNode]) -> list[SlurmNode]:
    """Returns the nodes that slurmd Pods have made."""
    return [node for node in nodes if node.dynamic and node.instance_type.startswith(MARK)]


def believed(gone: Collection[SlurmNode], total: int) -> list[SlurmNode]:
    """Returns those of the nodes whose Nodes are gone that this is believed of; `total` are there. What
    slurmd has left in order does not count: an autoscaler may take as many as it likes."""
    left = [node for node in gone if _has_left(node)]
    return left if too_many(len(gone) - len(left), total - len(left)) else list(gone)


def silent(node: SlurmNode) -> bool:
    """Tells whether no slurmd serves a node. Where one does its Node may be deleted by mistake."""
    return not node.responding or "DOWN" in node.states


def decide(
    gone: Iterable[SlurmNode], since: Mapping[str, float], now: float, reservations: Reservations
) -> list[Removal]:
    """Returns orders about nodes without Nodes. `since`: the time since which each is so, and silent."""
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
    """Returns True if a pool has drained an empty node for good. slurmctld may append to a reason."""
    drained = "DRAIN" in node.states and holder_of(node) is Holder.POOL
    for_good = PoolCause.LEAVES in node.reason or PoolCause.CORDONED in node.reason
    return drained and for_good and not node.has_jobs


def _reason(node: SlurmNode) -> str:
    return pool_reason(node.instance_type.removeprefix(MARK), PoolCause.GONE)
