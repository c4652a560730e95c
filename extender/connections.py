"""The connections of a listener: how many there are, whose turn it is, and which of them makes way.

A connection *owes* while something is its other side's to do: the TLS handshake, the rest of a request,
to read a reply. That has a deadline. It is *silent* before its first byte: clients written in Go open
more connections than they use, and keep the others. It *rests* between two requests, and is nothing of
all that while we answer. No I/O here: the clock is passed in, and a connection is told to end by `cut`.

Not uvicorn's limit_concurrency: while too many connections are open, idle ones included, it refuses the
requests of all of them, so that whoever opens that many silences everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """What a listener's callers may take."""

    connections: int
    body: Callable[[], int]
    """Bytes of a request's body, at this moment."""
    head: int = 8 << 10
    """Bytes of a request beside its body."""
    bodies: int = 64 << 20
    """Bytes of all bodies that are not answered yet; one of the longest fits besides."""
    owes_s: float = 10.0
    """For a TLS handshake, from a request's first byte to its last, and to read a reply."""
    rests_s: float = 120.0
    """Before the first request, and between two. Go's clients, which kube-scheduler and kube-apiserver
    are, leave after 90 s: before us, or they would send a request into a connection that we end."""


class Connection(Protocol):
    """A connection as it is seen here."""

    def cut(self) -> None:
        """Ends it at once."""
        ...


class _Waits(Enum):
    """For what a connection that is not being answered waits; the first make way first."""

    OWES = auto()
    SILENT = auto()
    RESTS = auto()


class Connections:
    """All connections of a listener. `refused` hears why one was ended or not taken."""

    def __init__(
        self, limits: Limits, clock: Callable[[], float], refused: Callable[[str], object]
    ) -> None:
        self.limits = limits
        self.refused = refused
        self._clock = clock
        self._open: dict[Connection, int] = {}
        """All of them, and the bytes of each one's body."""
        self._waiting: dict[_Waits, dict[Connection, float]] = {each: {} for each in _Waits}
        """Since when, the longest first."""
        self._held = 0

    def admits(self, connection: Connection) -> bool:
        """Takes a new connection, which owes its handshake. Where there are too many, the one makes way
        that has owed longest, else been silent, else rested; False where all are being answered."""
        if len(self._open) >= self.limits.connections:
            self.refused("too many connections")
            oldest = next((one for waiting in self._waiting.values() for one in waiting), None)
            if oldest is None:
                return False
            self._end(oldest)
        self._open[connection] = 0
        self.owes(connection)
        return True

    def owes(self, connection: Connection) -> None:
        """Something is the other side's to do. Where that was so before, nothing changes."""
        self._waits(connection, _Waits.OWES)

    def is_silent(self, connection: Connection) -> None:
        """It can be spoken on, and has not been."""
        self._waits(connection, _Waits.SILENT)

    def works(self, connection: Connection) -> None:
        """Its request is here, and we are about to answer."""
        self._waits(connection, None)

    def rests(self, connection: Connection) -> None:
        """Its request is answered, and the next one has not begun."""
        self._waits(connection, _Waits.RESTS)

    def _waits(self, connection: Connection, now: _Waits | None) -> None:
        for each, waiting in self._waiting.items():
            if each is not now:
                waiting.pop(connection, None)
        if now is not None and connection in self._open:
            self._waiting[now].setdefault(connection, self._clock())

    def holds(self, connection: Connection, more: int) -> bool:
        """Takes note of so many bytes of its body. Where all bodies are too large together, the
        connections make way that have owed longest; False where that is not enough."""
        if connection not in self._open:
            return False
        self._held += more
        self._open[connection] += more
        if self._held <= self.limits.bodies:  # as nearly always
            return True
        most = self.limits.bodies + self.limits.body()
        while self._held > most:
            owing = self._waiting[_Waits.OWES]
            oldest = next((each for each in owing if self._open[each]), connection)
            if oldest is connection:
                return False
            self.refused("too many bodies")
            self._end(oldest)
        return True

    def lets_go(self, connection: Connection) -> None:
        """Its body is needed no longer."""
        if held := self._open.get(connection):
            self._held -= held
            self._open[connection] = 0

    def gone(self, connection: Connection) -> bool:
        """It has ended. Tells whether that is news."""
        self.lets_go(connection)
        self._waits(connection, None)
        return self._open.pop(connection, None) is not None

    def end_overdue(self) -> None:
        """Ends those that owe, are silent or rest for too long."""
        for connection in self._overdue(_Waits.OWES, self.limits.owes_s):
            self.refused("too slow")
            self._end(connection)
        for waits in (_Waits.SILENT, _Waits.RESTS):
            for connection in self._overdue(waits, self.limits.rests_s):
                self._end(connection)

    def _overdue(self, waits: _Waits, longest_s: float) -> list[Connection]:
        before, since = self._clock() - longest_s, self._waiting[waits].items()
        return [each for each, _ in takewhile(lambda item: item[1] <= before, since)]

    def _end(self, connection: Connection) -> None:
        self.gone(connection)
        connection.cut()
