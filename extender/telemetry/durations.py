"""Time that a Pod waits for the extender instead of Slurm's queue, and time until an eviction.

The ledger has the time of the current state; this module keeps the times before."""

import time
from collections.abc import Callable

from extender.record.placeholder import Placeholder
from extender.record.states import State

_WAITS = frozenset({State.SEEN, State.QUEUED, State.INVALID})
"""For its turn, for Slurm's queue, for its author."""
_OVER = frozenset({State.BOUND, State.RELEASING, State.DONE})


class Durations:
    """Of placeholders on their way. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waited: dict[str, float] = {}
        """For how long each placeholder that is not bound yet has waited, by uid."""
        self._evicting: dict[str, float] = {}
        """Since when each is to be evicted."""

    def handled(self, before: Placeholder | None, after: Placeholder) -> float | None:
        """Notes another state. Returns for how long a Pod that is bound now was handled, its waits left
        out; None where it is not bound now, or was bound already when it was first seen."""
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
        """Notes that a Pod is to be evicted, or that it need not be any more."""
        if after.state is State.EVICTING:
            self._evicting[after.uid] = self._clock()
        elif before is not None and before.state is State.EVICTING:
            self._evicting.pop(after.uid, None)

    def evicted(self, uid: str) -> float | None:
        """Returns how long it took until the Pod was deleted; None where that was told already."""
        since = self._evicting.pop(uid, None)
        return None if since is None else self._clock() - since

    def forget(self) -> None:
        """Another replica leads from now on."""
        self._waited.clear()
        self._evicting.clear()
