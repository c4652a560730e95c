"""The eviction limiter lets a limited number of deletions pass in any minute (invariant I5).

The end of a job ends its Pod, and the end of a Pod ends its job. Very many ends at once may be a
mistake: an administrator wiped a partition, or Slurm started with another state. A person should notice
such a mistake before everything is gone. Therefore the limiter delays the deletions above the limit, and
reports the number. The limit counts the last 60 seconds, so the delayed deletions pass one after the
other without a person. Otherwise one mistake at night would keep the nodes of preempted Pods from other
jobs until the morning. A limit of 0 delays all deletions until a person sets another limit.

Foreseen ends (`is_foreseen`) pass, and do not count. Preempted Pods go first, because their node already
belongs to another job. If the preempted Pod stays too long, the other job's Prolog gate fails. A quarter
of the limit is reserved for preempted Pods. For the other Pods, the namespaces take turns. A namespace
gets another deletion only while its deletions of the last minute are fewer than three times the
remaining deletions without the reserve. So no namespace blocks another namespace.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from math import inf

from extender.record.ends import FORESEEN
from extender.record.placeholder import Placeholder
from wellknown.names import Reason

_MINUTE_S = 60.0
_NAMED = 3
_ORPHAN = "OrphanJob"
_MAX_SHARE_OF_REST = 3
_RESERVED_SHARE = 4

OnChange = Callable[["EvictionLimiter", Placeholder | None], object]
"""Called after each change of the delayed records. The second argument is the record that is delayed
now; None if a record is not delayed any more."""
_Lines = dict[str, dict[str, None]]
"""Uids of delayed records, by namespace, in their order. The namespace with the next turn comes
first."""


def is_foreseen(record: Placeholder) -> bool:
    """Returns True if a job ended because of its time limit, because of its deadline, or by itself. Such
    an end is never a mistake. A cancelled job is not foreseen, because slurmctld does not report whether
    the owner or an administrator cancelled the job (24.11, 26.05)."""
    return record.evicted_for is not None and record.evicted_for.reason in FORESEEN


class EvictionLimiter:
    """Lets at most `limit` deletions pass in any minute. A deletion that is repeated counts only
    once."""

    def __init__(self, limit: int, on_change: OnChange = lambda *_: None) -> None:
        self.limit = limit
        self._reserve = limit // _RESERVED_SHARE
        self._on_change = on_change
        self._passed: dict[str, tuple[float, str]] = {}
        """For each deletion of the last minute: its time, and the namespace. In the order of the
        times."""
        self._taken: Counter[str] = Counter()
        """Number of deletions in the last minute, by namespace."""
        self._held: dict[str, Placeholder] = {}
        """The delayed records, by uid, in the order of their arrival."""
        self._preempted: _Lines = {}
        self._others: _Lines = {}
        self._reasons: Counter[str] = Counter()
        self._turn: str | None = None
        """Uid of the record that may delete its Pod now; None if no record has a turn."""

    def passes(self, record: Placeholder, now: float, pod: str | None = None) -> bool:
        """Returns True if a Pod of a record may be deleted now, or if the job may be cancelled now.
        Otherwise the record is delayed until `turns` yields the uid."""
        uid, what, namespace = record.uid, pod or record.uid, record.workload.namespace
        if what in self._passed or (self.limit and is_foreseen(record)):
            return True
        if uid == self._turn or (uid not in self._held and self._may_pass_at_once(record, now)):
            self.forget(uid)
            self._turn = None
            self._passed[what] = now, namespace
            self._taken[namespace] += 1
            return True
        if uid not in self._held:
            self._hold(record)
        return False

    def turns(self, now: float) -> Iterator[str]:
        """Yields the uids of delayed records that have their turns now. After each uid, the caller must
        call `passes` for the record before the caller takes the next uid. Otherwise the limiter forgets
        the record."""
        while (first := self._first(now)) is not None:
            lines, namespace = first
            lines[namespace] = lines.pop(namespace)
            self._turn = uid = next(iter(lines[namespace]))
            yield uid
            if self._turn is not None:  # the caller did not use the turn: the record is removed
                self._turn = None
                self.forget(uid)

    def forget(self, uid: str) -> None:
        """Removes a record from the delayed records."""
        held = self._held.pop(uid, None)
        if held is None:
            return
        reason, namespace = _reason(held), held.workload.namespace
        self._reasons[reason] -= 1
        lines = self._lines(reason)
        del lines[namespace][uid]
        if not lines[namespace]:
            del lines[namespace]
        self._on_change(self, None)

    def __contains__(self, uid: str) -> bool:
        return uid in self._held

    @property
    def held(self) -> int:
        """Returns the number of delayed records."""
        return len(self._held)

    @property
    def opens(self) -> float:
        """Returns the time of the next turn; infinity if no record is delayed."""
        return self._slides_on() if self._held else inf

    @property
    def words(self) -> str | None:
        """Returns a message about the delayed records; None if no record is delayed."""
        if not self._held:
            return None
        why = ", ".join(f"{count} {reason}" for reason, count in self._reasons.items() if count)
        names = ", ".join(held.workload.full_name for held in islice(self._held.values(), _NAMED))
        return (
            f"the eviction limit is reached: {self.limit} deletions a minute may pass"
            f" (SLURM_EXTENDER_EVICTIONS_PER_MINUTE); {self.held} are held back"
            f" ({why}), first {names}"
        )

    def _may_pass_at_once(self, record: Placeholder, now: float) -> bool:
        """Returns True if a new deletion may pass without a delay. Returns False while a delayed
        deletion may pass first."""
        room = self._room(now)
        if room <= 0 or self._first(now) is not None:
            return False
        preempted = _reason(record) == Reason.SLURM_JOB_PREEMPTED
        return preempted or self._has_a_share(record.workload.namespace, room)

    def _first(self, now: float) -> tuple[_Lines, str] | None:
        """Returns the namespace with the next turn, and the lines in which the namespace waits; None if
        no record may pass now."""
        room = self._room(now) if self._held else 0
        if room > 0 and self._preempted:
            return self._preempted, next(iter(self._preempted))
        others = self._others if room > self._reserve else ()
        open_to = (each for each in others if self._has_a_share(each, room))
        return next(((self._others, each) for each in open_to), None)

    def _room(self, now: float) -> int:
        while self._passed and self._slides_on() <= now:
            _, namespace = self._passed.pop(next(iter(self._passed)))
            self._taken[namespace] -= 1
            if not self._taken[namespace]:
                del self._taken[namespace]
        return self.limit - len(self._passed)

    def _slides_on(self) -> float:
        return next(iter(self._passed.values()))[0] + _MINUTE_S if self._passed else inf

    def _has_a_share(self, namespace: str, room: int) -> bool:
        return self._taken[namespace] < _MAX_SHARE_OF_REST * (room - self._reserve)

    def _hold(self, record: Placeholder) -> None:
        reason = _reason(record)
        self._held[record.uid] = record
        self._lines(reason).setdefault(record.workload.namespace, {})[record.uid] = None
        self._reasons[reason] += 1
        self._on_change(self, record)

    def _lines(self, reason: str) -> _Lines:
        return self._preempted if reason == Reason.SLURM_JOB_PREEMPTED else self._others


def _reason(record: Placeholder) -> str:
    return _ORPHAN if record.evicted_for is None else record.evicted_for.reason
