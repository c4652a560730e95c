"""Reservations of nodes as values (scontrol(1) create reservation)."""

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

    def over(self, now: float) -> bool:
        """Whether it has ended for good. Slurm still lists it while its jobs run."""
        return self.end is not None and self.end <= now and not self.recurs
