"""Quiet periods: times without an attack, in which all attacked components serve again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class QuietPeriods:
    """Records quiet periods. Safe to use from any thread. A disturbance of `within` also ends a quiet
    period of this object."""

    def __init__(self, within: QuietPeriods | None = None) -> None:
        self._within = within
        self._changed = Condition()
        self._disturbances: Counter[str] = Counter()
        self._since = time.monotonic()
        self._spans: list[tuple[float, float]] = []
        """Past quiet periods."""

    @contextmanager
    def disturbed(self, by: str) -> Iterator[None]:
        with self._changed:
            if not self._disturbances.total():
                self._spans.append((self._since, time.monotonic()))
            self._disturbances[by] += 1
        try:
            yield
        finally:
            with self._changed:
                self._disturbances[by] -= 1
                self._since = time.monotonic()
                self._changed.notify_all()

    def since(self) -> float | None:
        """Returns the start of the current quiet period; None during a disturbance."""
        with self._changed:
            own = None if self._disturbances.total() else self._since
        if self._within is None or own is None:
            return own
        around = self._within.since()
        return None if around is None else max(own, around)

    def covers(self, begin: float, end: float) -> bool:
        """Returns True if no disturbance occurred from `begin` to `end`."""
        with self._changed:
            spans = list(self._spans)
            if not self._disturbances.total():
                spans.append((self._since, end))
        own = any(first <= begin and end <= last for first, last in spans)
        return own and (self._within is None or self._within.covers(begin, end))

    def wait(self, lasting_s: float, within_s: float) -> bool:
        """Waits for a quiet period of `lasting_s` seconds. Returns False after `within_s` seconds."""
        deadline = time.monotonic() + within_s
        while (now := time.monotonic()) < deadline:
            since = self.since()
            if since is not None and now - since >= lasting_s:
                return True
            time.sleep(0.1)
        return False

    def __str__(self) -> str:
        with self._changed:
            own = sorted(+self._disturbances)
        around = [str(self._within)] if self._within and self._within.since() is None else []
        return ", ".join([*around, *own]) or "quiet"
