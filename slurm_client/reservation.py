"""Reservations of nodes as values (scontrol(1) create reservation)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from slurm_client.model import Node

_RECURS: Final = frozenset({"HOURLY", "DAILY", "WEEKLY", "WEEKDAY", "WEEKEND", "REOCCURRING"})
_FOLLOWS: Final = frozenset({"ALL_NODES", "PART_NODES"})


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that only some may use from `start` to `end`, in UNIX seconds; None where it is not told."""

    name: str
    nodes: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    flags: frozenset[str] = frozenset()
    """Slurm's words: "MAINT", "DAILY", "ALL_NODES"."""
    partition: str = ""
    users: tuple[str, ...] = ()
    """The users that may use it; all but these, if the names begin with "-"."""
    accounts: tuple[str, ...] = ()
    """The accounts whose users may use it, or may not, in the same way."""

    @property
    def recurs(self) -> bool:
        """Whether it begins again when it has ended."""
        return not _RECURS.isdisjoint(self.flags)

    @property
    def follows(self) -> bool:
        """Whether Slurm itself keeps it to all nodes that there are, or to all of a partition: it was
        made with Nodes=ALL. A node that registers is in it only once Slurm has validated it."""
        return not _FOLLOWS.isdisjoint(self.flags)

    def is_to_have(self, node: Node) -> bool:
        """Whether a node is one of those that it `follows`."""
        of_its_partition = "PART_NODES" in self.flags and self.partition in node.partitions
        return "ALL_NODES" in self.flags or of_its_partition

    def admits(self, user: str, accounts: Collection[str]) -> bool:
        """Tells whether a user with these accounts may certainly use it. Slurm may also admit users by
        groups or QOS."""
        named = self.users or self.accounts
        return (
            bool(named)
            and _admits(self.users, frozenset({user}))
            and _admits(self.accounts, frozenset(accounts))
        )

    def over(self, now: float) -> bool:
        """Whether it has ended for good. Slurm still lists it while its jobs run."""
        return self.end is not None and self.end <= now and not self.recurs


def _admits(listed: Collection[str], own: frozenset[str]) -> bool:
    denied = {name[1:] for name in listed if name.startswith("-")}
    if denied:
        return not own <= denied
    return not listed or not own.isdisjoint(listed)
