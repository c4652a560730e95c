"""When each record is to be looked at again, or its Pods' authors be told something, though nothing
happens."""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from math import inf

from extender.record.member import Member, changed_members
from extender.record.placeholder import Placeholder
from extender.turns.exclusive_turns import turn_ends

Turns = OrderedDict[str, float]
"""The uids of records, and when each is to be told, in that order."""


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
        had, has = () if before is None else before.members, record.members
        changed = changed_members(had, has)
        if changed is not None:
            had, has = tuple(old for old, _ in changed), tuple(new for _, new in changed)
        dues = [due for due in _dues(record, has) if now < due < inf]
        noted = _dues(before, had) if dues and before is not None else []
        for due in dues:
            if due not in noted:
                heapq.heappush(self.noted, (due, record.uid))

    def due(self, now: float, record_of: Callable[[str], Placeholder | None]) -> Iterator[str]:
        """Yields the records whose time has come, and means something to them still."""
        while self.noted and self.noted[0][0] <= now:
            due, uid = heapq.heappop(self.noted)
            record = record_of(uid)
            if record is not None and due in _dues(record, record.members):
                yield uid


def _dues(record: Placeholder, members: Iterable[Member]) -> list[float]:
    """Returns the times at which a record and some of its members are due. Times in the past, and
    infinity, do not count."""
    dues = [record.retry.due, record.rejections.invalid_until, record.retry.unbound_by]
    dues += record.lingers_until, record.rejections.rests_until, turn_ends(record)
    for each in members:
        dues += each.quiet_until, each.write.due
    return dues


class ToTell:
    """Who is to be told, and when. There may be 50,000: between two there are `interval` seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self.told_at = -inf
        """When somebody was told last."""
        self.in_line: Turns = OrderedDict()
        """Who came in line."""
        self.when: Turns = OrderedDict()
        """Who is refused until another time than before."""
        self.again: Turns = OrderedDict()
        """Who was told why it waits: Events are forgotten."""

    @property
    def next(self) -> float:
        """When the next is told; infinity where there is none."""
        if not (self.in_line or self.when or self.again):  # as mostly
            return inf
        return min(map(self._next_of, (self.in_line, self.when, self.again)))

    def due(self, turns: Turns, now: float) -> Iterator[str]:
        """Yields those whose turn it is; `told_at` is to be set for each that is told."""
        while self._next_of(turns) <= now:
            yield turns.popitem(last=False)[0]

    def _next_of(self, turns: Turns) -> float:
        return max(next(iter(turns.values())), self.told_at + self._interval) if turns else inf


def taken(uids: dict[str, None]) -> Iterator[str]:
    """Yields the uids in their order, and takes each out of the dictionary."""
    while uids:
        uid = next(iter(uids))
        del uids[uid]
        yield uid
