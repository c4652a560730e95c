"""Reservations of nodes as values (scontrol(1) create reservation)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from slurm_client.model import Node

_RECURS: Final = frozenset({"HOURLY", "DAILY", "WEEKLY", "WEEKDAY", "WEEKEND", "REOCCURRING"})
_FOLLOWS: Final = frozenset({"ALL_NODES", "PART_NODES"})


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that Slurm keeps for some users from `start` to `end`. Both times are UNIX seconds, or None
    if not reported."""

    name: str
    nodes: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    flags: frozenset[str] = frozenset()
    """Slurm's names of the flags, like "MAINT", "DAILY" and "ALL_NODES"."""
    partition: str = ""
    users: tuple[str, ...] = ()
    """The admitted users. If the names begin with "-", all other users are admitted."""
    accounts: tuple[str, ...] = ()
    """The accounts of admitted users. If the names begin with "-", all other accounts are admitted."""

    @property
    def recurs(self) -> bool:
        """True for a reservation that begins again after its end."""
        return not _RECURS.isdisjoint(self.flags)

    @property
    def follows(self) -> bool:
        """True if the reservation has all nodes, or all nodes of a partition (Nodes=ALL). A node that
        registers joins the reservation only at Slurm's next validation."""
        return not _FOLLOWS.isdisjoint(self.flags)

    def is_to_have(self, node: Node) -> bool:
        """Returns True if the reservation is for all nodes, or for all nodes of a partition to which
        this node belongs."""
        of_its_partition = "PART_NODES" in self.flags and self.partition in node.partitions
        return "ALL_NODES" in self.flags or of_its_partition

    def admits(self, user: str, accounts: Collection[str]) -> bool:
        """Returns True if the reservation certainly admits a user with these accounts. Slurm may also
        admit users by groups or QOS."""
        if not (self.users or self.accounts):
            return False
        return _admits(self.users, frozenset({user})) and _admits(self.accounts, frozenset(accounts))

    def over(self, now: float) -> bool:
        """Returns True if the reservation has ended and does not begin again. Slurm still lists an ended
        reservation while its jobs run."""
        return self.end is not None and self.end <= now and not self.recurs


def _admits(listed: Collection[str], own: frozenset[str]) -> bool:
    denied = {name[1:] for name in listed if name.startswith("-")}
    if denied:
        return not own <= denied
    return not listed or not own.isdisjoint(listed)
