"""Measures how long a Pod waits for the extender, without the wait in Slurm's queue, and how long an
eviction takes.

The ledger has the start of the current state. This module stores the times of earlier states."""

import time
from collections.abc import Callable

from extender.record.placeholder import Placeholder
from extender.record.states import State

_WAITS = frozenset({State.SEEN, State.QUEUED, State.INVALID})
"""States of a Pod that waits for a turn, for Slurm's queue, or for the author."""
_OVER = frozenset({State.BOUND, State.RELEASING, State.DONE})


class Durations:
    """Measures the durations of placeholders until their end. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waited: dict[str, float] = {}
        """Waiting time of each placeholder that is not bound yet, by uid."""
        self._evicting: dict[str, float] = {}
        """Start of each placeholder's wait for the eviction."""

    def handled(self, before: Placeholder | None, after: Placeholder) -> float | None:
        """Notes a change of the state. Returns the time until a Pod was bound, without the time in the
        states `_WAITS`. Returns None if the Pod is not bound now, or was already bound at the first
        observation."""
        uid = after.uid
        if before is not None and before.state in _WAITS:
            waited = after.since - before.since
            self._waited[uid] = self._waited.get(uid, 0.0) + waited
        if after.state not in _OVER:
            return None
        waited = self._waited.pop(uid, 0.0)
        if after.state is not State.BOUND or before is None:
            return None
        return max(0.0, after.since - after.first_seen - waited)

    def note_eviction(self, before: Placeholder | None, after: Placeholder) -> None:
        """Notes a Pod that has to be evicted, or no longer has to be evicted."""
        if after.state is State.EVICTING:
            self._evicting[after.uid] = self._clock()
        elif before is not None and before.state is State.EVICTING:
            self._evicting.pop(after.uid, None)

    def evicted(self, uid: str) -> float | None:
        """Returns the seconds from the decision to evict a Pod until the present call, which reports the
        deletion of the Pod. Returns None if an earlier call has returned the time of this eviction."""
        since = self._evicting.pop(uid, None)
        return None if since is None else self._clock() - since

    def forget(self) -> None:
        """Removes all times, because another replica leads."""
        self._waited.clear()
        self._evicting.clear()
