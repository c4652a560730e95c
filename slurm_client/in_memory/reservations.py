"""The reservations of an `InMemorySlurm`: their users, and their changing nodes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from slurm_client.in_memory.machines import Machine
from slurm_client.reservation import Reservation


class Reservations:
    """All current and future reservations. A node is in at most one reservation at a time."""

    def __init__(self) -> None:
        self.known: dict[str, Reservation] = {}
        self.users: dict[str, frozenset[int]] = {}
        """The users of each reservation, without root."""
        self._held: dict[str, str] = {}
        """The active reservation of each node."""

    def make(self, reservation: Reservation, users: Iterable[int]) -> None:
        self.known[reservation.name] = reservation
        self.users[reservation.name] = frozenset(users)

    def end(self, name: str) -> None:
        """Ends a reservation. Does nothing for an unknown name."""
        self.known.pop(name, None)
        self.users.pop(name, None)

    def come_to(self, now: float, machines: Mapping[str, Machine]) -> bool:
        """Begins and ends due reservations. Returns True if a node's reservation changed."""
        for name in [name for name, one in self.known.items() if one.over(now)]:
            self.end(name)
        begun = [one for one in self.known.values() if (one.start or 0) <= now]
        held = {node: one.name for one in begun for node in one.nodes if node in machines}
        if held == self._held:
            return False
        for node in self._held.keys() | held.keys():
            if node in machines:
                machines[node].reserve(held.get(node, ""))
        self._held = held
        return True

    def validate(self, machines: Collection[str]) -> None:
        """Updates the nodes of all reservations. A reservation of all nodes gets all existing nodes.
        Other reservations lose the deleted nodes, and end if no node is left. slurmctld does so after
        changes and deletions of nodes, but not when a node registers."""
        for name, one in list(self.known.items()):
            left = machines if one.follows else [node for node in one.nodes if node in machines]
            self.known[name] = replace(one, nodes=tuple(left))
            if not left and not one.follows:
                self.end(name)
