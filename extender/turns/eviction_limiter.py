"""The eviction limiter lets a limited number of deletions pass in any minute (invariant I5).

The end of a job ends its Pod, and the end of a Pod ends its job. Very many ends at once may be a
mistake: an administrator wiped a partition, or Slurm started with another state. A person should
notice such a mistake before everything is gone. Therefore the limiter holds back the deletions
above the limit, reports them, and lets them pass as the minute slides on: otherwise, one mistake at
night would keep nodes from preemption until the morning. A limit of 0 holds back everything until a
person sets another limit.

Foreseen ends (`is_foreseen`) pass and do not count. Preempted Pods go first, because the node already
belongs to another job, whose Prolog gate fails in the end; a quarter of the limit is reserved for
preempted Pods. The other Pods go by turns over their namespaces. A namespace uses at most three
times as many of the other deletions as remain, so that no namespace holds up another namespace.
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
"""Called after each change of the records in line, with the record if another record joins the line."""
_Lines = dict[str, dict[str, None]]
"""Waiting uids in their order, by namespace. The namespace with the next turn comes first."""


def is_foreseen(record: Placeholder) -> bool:
    """Returns True if a job ended by its time limit, by its deadline or by itself: never a mistake. A
    cancelled job counts: slurmctld does not report whether its owner or an administrator cancelled the
    job (24.11, 26.05)."""
    return record.evicted_for is not None and record.evicted_for.reason in FORESEEN


class EvictionLimiter:
    """`limit` deletions pass in any minute. A repeated deletion counts once."""

    def __init__(self, limit: int, on_change: OnChange = lambda *_: None) -> None:
        self.limit = limit
        self._reserve = limit // _RESERVED_SHARE
        self._on_change = on_change
        self._passed: dict[str, tuple[float, str]] = {}
        """Time and namespace of the deletions of the last minute, in their order."""
        self._taken: Counter[str] = Counter()
        """Number of deletions in the last minute, by namespace."""
        self._held: dict[str, Placeholder] = {}
        """The records in line, in the order of their arrival."""
        self._preempted: _Lines = {}
        self._others: _Lines = {}
        self._reasons: Counter[str] = Counter()
        self._turn: str | None = None
        """The uid with the turn."""

    def passes(self, record: Placeholder, now: float, pod: str | None = None) -> bool:
        """Returns True if a Pod of a record, or the job, may be deleted now. If not, the record waits in
        line for one of the `turns`."""
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
        """Yields the uids with a turn. The caller deletes each before the next, or never."""
        while (first := self._first(now)) is not None:
            lines, namespace = first
            lines[namespace] = lines.pop(namespace)
            self._turn = uid = next(iter(lines[namespace]))
            yield uid
            if self._turn is not None:  # the caller did not use the turn; a turn is for one Pod
                self._turn = None
                self.forget(uid)

    def forget(self, uid: str) -> None:
        """Removes a record from the line."""
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
        """Returns the number of records in line."""
        return len(self._held)

    @property
    def opens(self) -> float:
        """Returns the time of the next turn; infinity without records in line."""
        return self._slides_on() if self._held else inf

    @property
    def words(self) -> str | None:
        """Returns a message about the records in line; None without records in line."""
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
        """Returns False while a queued deletion might be allowed first."""
        room = self._room(now)
        if room <= 0 or self._first(now) is not None:
            return False
        preempted = _reason(record) == Reason.SLURM_JOB_PREEMPTED
        return preempted or self._has_a_share(record.workload.namespace, room)

    def _first(self, now: float) -> tuple[_Lines, str] | None:
        """Returns the lines and the namespace with the next turn."""
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
