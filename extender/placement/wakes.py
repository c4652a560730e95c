"""When each record is to be looked at again though nothing happens."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from math import inf

from extender.placement.placeholder import Placeholder
from extender.placement.retry import Waits


class Wakes:
    """Times on the ledger's clock, each with the uid of a record. One that is over does no harm: the
    record says what is due."""

    def __init__(self) -> None:
        self.noted: list[tuple[float, str]] = []
        """A heap: the first one first."""

    @property
    def next(self) -> float:
        """When the next record is due; infinity where none is."""
        return self.noted[0][0] if self.noted else inf

    def note(self, before: Placeholder | None, record: Placeholder, now: float) -> None:
        """Takes note of when a record is due. What was due before is noted already: a Pod that rests may
        have another version very often."""
        noted = () if before is None else _dues(before)
        for due in _dues(record):
            if now < due < inf and due not in noted:
                heapq.heappush(self.noted, (due, record.uid))

    def due(self, now: float) -> Iterator[str]:
        """Yields the records whose time has come."""
        while self.noted and self.noted[0][0] <= now:
            yield heapq.heappop(self.noted)[1]


def _dues(record: Placeholder) -> tuple[float, ...]:
    """Returns when a record is to be looked at again; what is past, and infinity, do not count."""
    waits = record.retry.in_flight or record.retry.waits is not Waits.FOR_TIME
    due = inf if waits else record.retry.not_before
    again = inf if record.forbidden_because is None else record.forbidden_because.until
    quiet = (each.quiet_until for each in record.members)
    dues = record.unbound_by, record.lingers_until, record.rejections.rests_until
    return due, again, *dues, *quiet
