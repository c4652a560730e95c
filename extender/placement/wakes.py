"""The times at which the ledger handles a record again, or repeats a report on the record's Pods, if no
event comes earlier."""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from math import inf

from extender.record.member import Member
from extender.record.members import changed_members
from extender.record.placeholder import Placeholder
from extender.turns.exclusive_turns import turn_ends

Turns = OrderedDict[str, float]
"""The uids of records, each with the time of the report on the record, in the order of these times."""


class Wakes:
    """Times on the ledger's clock, each with the uid of a record. An outdated time does no harm, because
    the record itself has the valid times."""

    def __init__(self) -> None:
        self.noted: list[tuple[float, str]] = []
        """A heap, with the earliest time first."""

    @property
    def next(self) -> float:
        """Time of the next due record; infinity if none is due."""
        return self.noted[0][0] if self.noted else inf

    def note(self, before: Placeholder | None, record: Placeholder, now: float) -> None:
        """Notes only the new due times of a record, because a waiting Pod may get new versions very
        often."""
        had, has = () if before is None else tuple(before.members), tuple(record.members)
        changed = changed_members(had, has)
        if changed is not None:
            had, has = tuple(old for old, _ in changed), tuple(new for _, new in changed)
        dues = [due for due in _dues(record, has) if now < due < inf]
        noted = {*_dues(before, had)} if dues and before is not None else set[float]()
        for due in dues:
            if due not in noted:
                heapq.heappush(self.noted, (due, record.uid))

    def due(self, now: float, record_of: Callable[[str], Placeholder | None]) -> Iterator[str]:
        """Yields the uids of the due records. A time counts only if the record is still due at this
        time."""
        while self.noted and self.noted[0][0] <= now:
            due, uid = heapq.heappop(self.noted)
            record = record_of(uid)
            if record is not None and due in _dues(record, record.members):
                yield uid


def _dues(record: Placeholder, members: Iterable[Member]) -> list[float]:
    """Returns the times at which a record and some of its members are due. The caller ignores times in
    the past, and infinity."""
    dues = [record.retry.due, record.rejections.invalid_until, record.retry.unbound_by]
    dues += record.lingers_until, record.rejections.rests_until, turn_ends(record)
    for each in members:
        dues += each.quiet_until, each.write.due
    return dues


class ToTell:
    """The Pods that need a report, with the times of the reports. 50,000 Pods may wait, so there is a
    pause of `interval` seconds between two reports."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self.reported_at = -inf
        """Time of the last report."""
        self.in_line: Turns = OrderedDict()
        """Pods that have begun to wait for their turns."""
        self.when: Turns = OrderedDict()
        """Rejected Pods whose next try now has another time."""
        self.again: Turns = OrderedDict()
        """Pods with an earlier report of waiting. The report is repeated because kube-apiserver deletes
        old Events."""

    @property
    def next(self) -> float:
        """Time of the next report; infinity if none is due."""
        if not (self.in_line or self.when or self.again):  # the common case
            return inf
        return min(map(self._next_of, (self.in_line, self.when, self.again)))

    def due(self, turns: Turns, now: float) -> Iterator[str]:
        """Yields the uids of the Pods whose reports are due. The caller sets `reported_at` for each
        report."""
        while self._next_of(turns) <= now:
            yield turns.popitem(last=False)[0]

    def _next_of(self, turns: Turns) -> float:
        return max(next(iter(turns.values())), self.reported_at + self._interval) if turns else inf


def taken(uids: dict[str, None]) -> Iterator[str]:
    """Yields the uids in order, and removes each from the dictionary."""
    while uids:
        uid = next(iter(uids))
        del uids[uid]
        yield uid
