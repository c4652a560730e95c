"""The reservations of nodes, for Slurm to forget a node only without harm: pure.

A reservation that has begun keeps Slurm from forgetting its node. A later reservation that names the
node would lose it, even if the node comes back; without other nodes the reservation would be gone."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from slurm_client.model import Node
from slurm_client.reservation import Reservation

Reservations = Mapping[str, tuple[Reservation, ...]]
"""By the names of their nodes."""


def by_node(reservations: Iterable[Reservation], now: float) -> Reservations:
    """Returns those that are not over."""
    found: defaultdict[str, list[Reservation]] = defaultdict(list)
    for each in reservations:
        for node in each.nodes if not each.over(now) else ():
            found[node].append(each)
    return {node: tuple(having) for node, having in found.items()}


def lacking(reservations: Iterable[Reservation], nodes: Collection[Node]) -> str | None:
    """Returns one of these nodes that a reservation is to have and does not, if there is one."""
    for each in reservations:
        if each.follows:
            has = frozenset(each.nodes)
            missing = (node.name for node in nodes if node.name not in has and each.is_to_have(node))
            found = next(missing, None)
            if found is not None:
                return found
    return None


def any_would_lose(reservations: Iterable[Reservation]) -> bool:
    """Tells whether any of a node's reservations would be without the node, if Slurm forgot it."""
    return any(not each.follows for each in reservations)
