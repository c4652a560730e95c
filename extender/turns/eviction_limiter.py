"""The eviction limiter lets a limited number of deletions a minute pass (invariant I5).

A job that ends ends its Pod, and a job whose Pod is gone is ended: each by itself is daily business.
Very many at once are as likely to be a mistake (a partition wiped, a Slurm that came up with another
state), and a person should see it before everything is gone. What is over the limit is held back, told
loudly, and let go as the minute slides on: a limiter that waited for a person would keep nodes from
preemption all night. A limit of none holds everything, until a person gives another.

What was to end so from the start (`is_foreseen`) passes and does not count. Of the rest preempted Pods
go first: the node of one that is held back is another job's already, whose gate fails in the end.
A quarter of the limit is kept for them, however many namespaces' jobs end for another reason.
The others go by turns over their namespaces, in each in their order. One namespace gets at most three
times as much of the rest as it leaves: whoever ends all jobs of one stops nobody else.
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
_MOST_OF_WHAT_IS_LEFT = 3
_QUARTER = 4

Heard = Callable[["EvictionLimiter", Placeholder | None], object]
"""Is told of every change in what is held back; with the record where that is one more."""


def is_foreseen(record: Placeholder) -> bool:
    """Tells whether a record's Pod is to be deleted because its job ended as it was to from the start,
    by its time limit, its deadline or by itself: however many those are, nobody's mistake. A job that
    was cancelled may be its owner's doing or an administrator's: slurmctld tells neither slurmrestd nor
    its hooks which (24.11, 26.05), so it counts."""
    return record.evicted_for is not None and record.evicted_for.reason in FORESEEN


_Lines = dict[str, dict[str, None]]
"""The uids of those that wait, in their order, by namespace; the namespace whose turn is next first."""


class EvictionLimiter:
    """`limit` deletions in any minute pass, each counted once however often it has to be repeated."""

    def __init__(self, limit: int, heard: Heard = lambda *_: None) -> None:
        self.limit = limit
        self._reserve = limit // _QUARTER
        """So many are left for preempted Pods alone."""
        self._heard = heard
        self._passed: dict[str, tuple[float, str]] = {}
        """Who passed within the last minute, when, and of which namespace; in that order."""
        self._taken: Counter[str] = Counter()
        """How many of those each namespace had."""
        self._held: dict[str, Placeholder] = {}
        """Who is held back, as they were then, in the order in which they came."""
        self._preempted: _Lines = {}
        self._others: _Lines = {}
        self._reasons: Counter[str] = Counter()
        self._stuck_until = -inf
        """Before then nobody who is held back may pass."""
        self._turn: str | None = None
        """Who may pass now."""

    def passes(self, record: Placeholder, now: float, pod: str | None = None) -> bool:
        """Tells whether what a record stands for may be deleted now: one of its Pods, or its job. If not
        the record is held back: it will be among `turns`."""
        uid, what = record.uid, pod or record.uid
        if what in self._passed or (self.limit and is_foreseen(record)):
            return True
        if uid == self._turn or (uid not in self._held and self._may_pass_at_once(record, now)):
            self.forget(uid)
            self._turn = None
            self._passed[what] = now, record.workload.namespace
            self._taken[record.workload.namespace] += 1
            return True
        if uid not in self._held:
            self._hold(record)
        return False

    def turns(self, now: float) -> Iterator[str]:
        """Yields the uids of those that may pass now; each has passed, or never will, when the next is
        asked for."""
        while (uid := self._next(now)) is not None:
            self._turn = uid
            yield uid
            if self._turn is not None:  # not used; a turn is for one Pod
                self._turn = None
                self.forget(uid)

    def forget(self, uid: str) -> None:
        """What is held back need not be deleted any more."""
        held = self._held.pop(uid, None)
        if held is None:
            return
        reason, namespace = _reason(held), held.workload.namespace
        self._reasons[reason] -= 1
        lines = self._lines(reason)
        del lines[namespace][uid]
        if not lines[namespace]:
            del lines[namespace]
        self._heard(self, None)

    def __contains__(self, uid: str) -> bool:
        return uid in self._held

    @property
    def held(self) -> int:
        """How many are held back."""
        return len(self._held)

    @property
    def opens(self) -> float:
        """When the next turn may be; infinity where nobody waits for one, or none ever comes."""
        return self._slides_on() if self._held else inf

    @property
    def words(self) -> str | None:
        """What is held back, for a person; None where nothing is."""
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
        """Not before it is known that none of those that wait may."""
        if self._held and now >= self._stuck_until:
            return False
        room, preempted = self._room(now), _reason(record) == Reason.SLURM_JOB_PREEMPTED
        return room > 0 and (preempted or self._has_a_share(record.workload.namespace, room))

    def _next(self, now: float) -> str | None:
        """Whose turn it is; then it is another namespace's."""
        if not self._held or now < self._stuck_until:
            return None
        room = self._room(now)
        for lines in (self._preempted, self._others) if room > 0 else ():
            for namespace, line in lines.items():
                if lines is self._preempted or self._has_a_share(namespace, room):
                    lines[namespace] = lines.pop(namespace)
                    return next(iter(line))
        self._stuck_until = self._slides_on()
        return None

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
        return self._taken[namespace] < _MOST_OF_WHAT_IS_LEFT * (room - self._reserve)

    def _hold(self, record: Placeholder) -> None:
        reason = _reason(record)
        self._held[record.uid] = record
        self._lines(reason).setdefault(record.workload.namespace, {})[record.uid] = None
        self._reasons[reason] += 1
        self._heard(self, record)

    def _lines(self, reason: str) -> _Lines:
        return self._preempted if reason == Reason.SLURM_JOB_PREEMPTED else self._others


def _reason(record: Placeholder) -> str:
    return _ORPHAN if record.evicted_for is None else record.evicted_for.reason
