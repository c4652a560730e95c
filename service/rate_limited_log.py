"""Rate-limited log lines, for events that any client can cause. Each line has the number of events
since the last line."""

import time
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger()

_EVERY_S = 30.0


class RateLimitedLog:
    """Logs a warning about a kind of event at most once in 30 s."""

    def __init__(
        self, event: str, clock: Callable[[], float] = time.monotonic, *, alarm: bool = False
    ) -> None:
        """Parameter `alarm` is True for lines at the level of errors."""
        self._event = event
        self._clock = clock
        self._alarm = alarm
        self._quiet_until = float("-inf")
        self._happened = 0

    def says(self, **words: Any) -> None:
        """Counts an event. The log line has these fields, and `since_last_told`: the number of
        events since the last line."""
        self._happened += 1
        self.flush(**words)

    def flush(self, **words: Any) -> None:
        """Logs the events without a log line yet, if the rate permits a line now."""
        if self._happened and self._clock() >= self._quiet_until:
            tell = log.error if self._alarm else log.warning
            tell(self._event, **words, since_last_told=self._happened)
            self._quiet_until, self._happened = self._clock() + _EVERY_S, 0
