"""Log lines that strangers can cause: they are written seldom, and say how often the event happened."""

import time
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger()

_EVERY_S = 30.0


class Seldom:
    """Logs a warning about one kind of event at most once in 30 s."""

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
        """Notes that the event happened. A log line has these words, and in `since_last_told` how often
        the event happened since the last line."""
        self._happened += 1
        self.makes_up(**words)

    def makes_up(self, **words: Any) -> None:
        """Logs an event that was not logged when it happened, if it may be logged now."""
        if self._happened and self._clock() >= self._quiet_until:
            tell = log.error if self._alarm else log.warning
            tell(self._event, **words, since_last_told=self._happened)
            self._quiet_until, self._happened = self._clock() + _EVERY_S, 0
