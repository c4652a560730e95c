"""Lines of the log that strangers can cause come seldom, and say how often it happened."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger()

_EVERY_S = 30.0


class Seldom:
    """Logs a warning about one kind of event, at most once in 30 s."""

    def __init__(
        self, event: str, clock: Callable[[], float] = time.monotonic, *, alarm: bool = False
    ) -> None:
        """An alarm is logged as an error."""
        self._event = event
        self._clock = clock
        self._alarm = alarm
        self._quiet_until = float("-inf")
        self._happened = 0

    def says(self, **words: Any) -> None:
        """Takes note that it happened. Where that is logged, so are these words, and in
        `since_last_told` how often it happened since the last line."""
        self._happened += 1
        self.makes_up(**words)

    def makes_up(self, **words: Any) -> None:
        """Logs what has happened and was not logged then, if it may be logged by now."""
        if self._happened and self._clock() >= self._quiet_until:
            tell = log.error if self._alarm else log.warning
            tell(self._event, **words, since_last_told=self._happened)
            self._quiet_until, self._happened = self._clock() + _EVERY_S, 0
