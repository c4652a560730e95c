"""What becomes of a pool's node in Slurm whose Node is gone from Kubernetes: pure.

A Node that is gone may come back in a moment (its kubelet makes it again), and a machine that is gone
says nothing: so its node is given up when its slurmd has been silent for a while, and forgotten later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from extender.pools.member import PREFIX
from extender.pools.reserved import Reservations, any_would_lose
from slurm_client.model import Node as SlurmNode
from wellknown.slurmd_pod import MARK

_DOWN_S = 60.0
_DELETE_S = 600.0
_HANDFUL = 5
"""So many at once may go; of more no more than a third, since then rather the list of Nodes is wrong."""


class What(Enum):
    DOWN = auto()
    DELETE = auto()


@dataclass(frozen=True, slots=True)
class Gone:
    """An order about a node."""

    node: str
    what: What
    reason: str = ""


def marked(nodes: Iterable[SlurmNode]) -> list[SlurmNode]:
    """Returns the nodes that slurmd Pods have made."""
    return [node for node in nodes if node.dynamic and node.instance_type.startswith(MARK)]


def too_many(gone: int, total: int) -> bool:
    """Tells whether so many Nodes of pools are gone that it is more likely wrong than true."""
    return gone > _HANDFUL and gone * 3 > total


def decide(
    gone: Iterable[SlurmNode],
    since: Mapping[str, float],
    now: float,
    reservations: Reservations,
) -> list[Gone]:
    """Returns what is to be done about nodes whose Nodes are gone, each first seen so at `since`."""
    orders = []
    for node in gone:
        age = now - since.get(node.name, now)
        down = "DOWN" in node.states
        if node.responding and not down:
            continue  # its slurmd lives: its Node may have been deleted by mistake
        reserved = "RESERVED" in node.states or any_would_lose(reservations.get(node.name, ()))
        if age >= _DELETE_S and not (node.cpus_allocated or "COMPLETING" in node.states or reserved):
            orders.append(Gone(node.name, What.DELETE))
        elif age >= _DOWN_S and not (down and node.reason.startswith(PREFIX)):
            orders.append(Gone(node.name, What.DOWN, _reason(node)))
    return orders


def _reason(node: SlurmNode) -> str:
    return f"{PREFIX}{node.instance_type.removeprefix(MARK)}: its Node is gone from Kubernetes"
