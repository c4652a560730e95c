"""Measures the times in which all members of a gang exist, and only some are bound."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tests.chaos.history import SeenPod


@dataclass(frozen=True, slots=True)
class Partial:
    """A time in which only a part of a whole gang was bound."""

    gang: str
    size: int
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class PartlyBound:
    """The times of all gangs with only a part of the members bound."""

    def __init__(self) -> None:
        self.found: list[Partial] = []
        self._since: dict[str, float] = {}

    def note(self, now: float, seen: SeenPod, members: Collection[SeenPod]) -> None:
        """Notes a change of a member. `members` are all present Pods of the gang."""
        bound = [bool(each.node) for each in members if not each.over]
        if len(bound) == seen.gang_size and any(bound) and not all(bound):
            self._since.setdefault(seen.gang, now)
        elif (since := self._since.pop(seen.gang, None)) is not None:
            self.found.append(Partial(seen.gang, seen.gang_size, since, now))


def limit_s(size: int) -> float:
    """Returns the longest time in which only a part of a gang may be bound, while nothing fails."""
    return 1.0 + 0.005 * size


def too_long(partial: Iterable[Partial], slowness: float) -> list[Partial]:
    """Returns the times that exceed the limit, on a machine of this slowness."""
    return [each for each in partial if each.seconds > limit_s(each.size) * max(1.0, slowness)]
