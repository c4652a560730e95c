"""The reservations of an `InMemorySlurm`: whose they are, and which nodes they hold, and lose."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from slurm_client.in_memory.machines import Machine
from slurm_client.reservation import Reservation


class Reservations:
    """All that are not over. A node is held by one at a time."""

    def __init__(self) -> None:
        self.known: dict[str, Reservation] = {}
        self.users: dict[str, frozenset[int]] = {}
        """The users of each, beside root."""
        self._held: dict[str, str] = {}
        """The reservation that has begun, by node."""

    def make(self, reservation: Reservation, users: Iterable[int]) -> None:
        self.known[reservation.name] = reservation
        self.users[reservation.name] = frozenset(users)

    def end(self, name: str) -> None:
        """Nothing to do where there is none of that name."""
        self.known.pop(name, None)
        self.users.pop(name, None)

    def come_to(self, now: float, machines: Mapping[str, Machine]) -> bool:
        """Begins and ends what is to begin and to end. Tells whether nodes have another one now."""
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
        """slurmctld does so whenever a node has been changed or deleted, and not when one registers: a
        reservation of all nodes gets those that there are, another one loses those that are gone."""
        for name, one in list(self.known.items()):
            left = machines if one.follows else [node for node in one.nodes if node in machines]
            self.known[name] = replace(one, nodes=tuple(left))
            if not left and not one.follows:
                self.end(name)
