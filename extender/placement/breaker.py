"""The breaker: not more than so many deletions a minute, whatever the two systems say (invariant I5).

A job that ends ends its Pod, and a job whose Pod is gone is ended: each by itself is daily business.
Very many at once are as likely to be a mistake (a partition wiped, a Slurm that came up with another
state), and a person should see it before everything is gone. What is over the limit is held back, told
loudly, and let go in its order as the minute slides on: a breaker that waited for a person would keep
nodes from preemption all night. A limit of none holds everything, until a person gives another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import inf

from extender.placement.placeholder import Placeholder

_MINUTE_S = 60.0
_NAMED = 3
_ORPHAN = "OrphanJob"

Heard = Callable[["Breaker", Placeholder | None], object]
"""Is told of every change in what is held back; with the record where that is one more."""


class Breaker:
    """`limit` deletions in any minute pass, each counted once however often it has to be repeated."""

    def __init__(self, limit: int, heard: Heard = lambda *_: None) -> None:
        self.limit = limit
        self._heard = heard
        self._passed: dict[str, float] = {}
        """Who passed within the last minute, and when; in that order."""
        self._held: dict[str, tuple[str, str]] = {}
        """Who is held back, in the order of their turns: what it is, and why it is to be deleted."""
        self._reasons: Counter[str] = Counter()

    def passes(self, record: Placeholder, now: float) -> bool:
        """Tells whether what a record stands for may be deleted now. If not it is held back: it will be
        among `turns`."""
        uid = record.pod.uid
        if uid in self._passed:
            return True
        if next(iter(self._held), uid) == uid and self._has_room(now):
            self.forget(uid)
            self._passed[uid] = now
            return True
        if uid not in self._held:
            self._hold(record)
        return False

    def turns(self, now: float) -> Iterator[str]:
        """Yields the uids of those that may pass now; each has passed, or never will, when the next is
        asked for."""
        while self._held and self._has_room(now):
            uid = next(iter(self._held))
            yield uid
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """What is held back need not be deleted any more."""
        if uid in self._held:
            reason = self._held.pop(uid)[1]
            self._reasons[reason] -= 1
            self._heard(self, None)

    @property
    def held(self) -> int:
        """How many are held back."""
        return len(self._held)

    @property
    def opens(self) -> float:
        """When the next turn is; infinity where nobody waits for one, or none ever comes."""
        if not self._held or not self._passed:
            return inf
        return next(iter(self._passed.values())) + _MINUTE_S

    @property
    def words(self) -> str | None:
        """What is held back, for a person; None where nothing is."""
        if not self._held:
            return None
        why = ", ".join(f"{count} {reason}" for reason, count in self._reasons.items() if count)
        names = ", ".join(what for (what, _), _ in zip(self._held.values(), range(_NAMED), strict=False))
        return (
            f"the breaker has tripped: {self.limit} deletions a minute may pass"
            f" (SLURM_EXTENDER_BREAKER_EVICTIONS_PER_MINUTE); {self.held} are held back"
            f" ({why}), first {names}"
        )

    def _has_room(self, now: float) -> bool:
        while self._passed and next(iter(self._passed.values())) + _MINUTE_S <= now:
            del self._passed[next(iter(self._passed))]
        return len(self._passed) < self.limit

    def _hold(self, record: Placeholder) -> None:
        reason = _ORPHAN if record.evicted_for is None else record.evicted_for.reason
        self._held[record.pod.uid] = f"{record.pod.namespace}/{record.pod.name}", reason
        self._reasons[reason] += 1
        self._heard(self, record)
