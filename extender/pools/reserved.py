"""Finds the reservations of nodes, so that a node is deleted in Slurm only if no reservation suffers.
This module is pure.

Slurm cannot delete a node while a reservation on the node runs. A later reservation that names the
node would lose the node, even if the node returns. A reservation without other nodes would be lost
completely."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from slurm_client.model import Node
from slurm_client.reservation import Reservation

Reservations = Mapping[str, tuple[Reservation, ...]]
"""Reservations by the names of their nodes."""


def by_node(reservations: Iterable[Reservation], now: float) -> Reservations:
    """Returns the reservations that are not over, by the names of their nodes."""
    found: defaultdict[str, list[Reservation]] = defaultdict(list)
    for each in reservations:
        for node in each.nodes if not each.over(now) else ():
            found[node].append(each)
    return {node: tuple(having) for node, having in found.items()}


def lacking(reservations: Iterable[Reservation], nodes: Collection[Node]) -> str | None:
    """Returns a node that is missing from a reservation with Nodes=ALL, or None."""
    for each in reservations:
        if each.follows:
            has = frozenset(each.nodes)
            missing = (node.name for node in nodes if node.name not in has and each.is_to_have(node))
            found = next(missing, None)
            if found is not None:
                return found
    return None


def any_would_lose(reservations: Iterable[Reservation]) -> bool:
    """Returns True if any of a node's reservations would lose the node if Slurm deleted the node."""
    return any(not each.follows for each in reservations)
