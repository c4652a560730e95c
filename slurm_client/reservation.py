"""Reservations of nodes as values (scontrol(1) create reservation)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from slurm_client.model import Node

_RECURS: Final = frozenset({"HOURLY", "DAILY", "WEEKLY", "WEEKDAY", "WEEKEND", "REOCCURRING"})
_FOLLOWS: Final = frozenset({"ALL_NODES", "PART_NODES"})


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes for some users from `start` to `end`, in UNIX seconds; None if not reported."""

    name: str
    nodes: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    flags: frozenset[str] = frozenset()
    """Slurm's words: "MAINT", "DAILY", "ALL_NODES"."""
    partition: str = ""
    users: tuple[str, ...] = ()
    """The admitted users. If the names begin with "-", all other users are admitted."""
    accounts: tuple[str, ...] = ()
    """The accounts of admitted users, in the same form."""

    @property
    def recurs(self) -> bool:
        """True for a reservation that begins again after its end."""
        return not _RECURS.isdisjoint(self.flags)

    @property
    def follows(self) -> bool:
        """True if the reservation has all nodes, or all nodes of a partition (Nodes=ALL). A node that
        registers is in the reservation after Slurm's next validation only."""
        return not _FOLLOWS.isdisjoint(self.flags)

    def is_to_have(self, node: Node) -> bool:
        """Returns True for a node that the reservation `follows`."""
        of_its_partition = "PART_NODES" in self.flags and self.partition in node.partitions
        return "ALL_NODES" in self.flags or of_its_partition

    def admits(self, user: str, accounts: Collection[str]) -> bool:
        """Returns True if a user with these accounts may certainly use the reservation. Slurm may also
        admit users by groups or QOS."""
        if not (self.users or self.accounts):
            return False
        return _admits(self.users, frozenset({user})) and _admits(self.accounts, frozenset(accounts))

    def over(self, now: float) -> bool:
        """Returns True after the last end. Slurm lists the reservation while its jobs run."""
        return self.end is not None and self.end <= now and not self.recurs


def _admits(listed: Collection[str], own: frozenset[str]) -> bool:
    denied = {name[1:] for name in listed if name.startswith("-")}
    if denied:
        return not own <= denied
    return not listed or not own.isdisjoint(listed)
