"""Pods' authors that are to be told something in a while, one after the other: there may be 50,000."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import inf

Turns = OrderedDict[str, float]
"""The uids of records, and when each is to be told, in that order."""


class ToTell:
    """Who is to be told, and when; between two that are told there are `interval` seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._told_at = -inf
        self.in_line: Turns = OrderedDict()
        """Who came in line."""
        self.when: Turns = OrderedDict()
        """Who is refused until another time than before."""
        self.again: Turns = OrderedDict()
        """Who was told why it waits: Events are forgotten."""

    @property
    def next(self) -> float:
        """When the next is told; infinity where there is none."""
        return min(map(self._next_of, (self.in_line, self.when, self.again)))

    def due(self, turns: Turns, now: float) -> Iterator[str]:
        """Yields those whose turn it is; `told` is to be called for each that is told."""
        while self._next_of(turns) <= now:
            yield turns.popitem(last=False)[0]

    def told(self, now: float) -> None:
        """Somebody is being told."""
        self._told_at = now

    def _next_of(self, turns: Turns) -> float:
        return max(next(iter(turns.values())), self._told_at + self._interval) if turns else inf
