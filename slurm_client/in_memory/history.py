"""What an `InMemorySlurm` was a while ago: slurmctld that is killed forgets seconds of its work.

Measured on 26.05.5 after kill -9: up to about 5 s of acknowledged submissions, cancels and node
changes were undone. A journal of what each change replaced is enough to go back.
"""

from collections import deque
from collections.abc import Callable

_KEPT_S = 60.0


class Journal:
    """How to undo each change, with its time; older ones than a minute are dropped."""

    def __init__(self) -> None:
        self._undo: deque[tuple[float, Callable[[], None]]] = deque()

    def add(self, now: float, undo: Callable[[], None]) -> None:
        self._undo.append((now, undo))
        while self._undo[0][0] < now - _KEPT_S:
            self._undo.popleft()

    def back_to(self, time: float) -> None:
        """Undo everything after `time`, the latest first."""
        while self._undo and self._undo[-1][0] > time:
            self._undo.pop()[1]()
