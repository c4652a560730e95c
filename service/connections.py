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


_Waiting = dict[Connection, float]
"""Connections that wait for the same, and since when: the longest first."""


@dataclass(slots=True)
class _Seat:
    """What is known of an open connection."""

    held: int = 0
    """Bytes of its body."""
    among: _Waiting | None = None
    """Those with which it waits; None while it is being answered."""


class Connections:
    """All connections of a listener. `rejected` hears why one was ended or not taken."""

    def __init__(
        self, limits: Limits, clock: Callable[[], float], rejected: Callable[[str], object]
    ) -> None:
        self.limits = limits
        self.rejected = rejected
        self._clock = clock
        self._open: dict[Connection, _Seat] = {}
        self._owing: _Waiting = {}
        self._silent: _Waiting = {}
        self._resting: _Waiting = {}
        self._waiting = self._owing, self._silent, self._resting
        """The first make way first."""
        self._held = 0

    def admits(self, connection: Connection) -> bool:
        """Takes a new connection, which owes its handshake. Where there are too many, the one makes way
        that has owed longest, else been silent, else rested; False where all are being answered."""
        if len(self._open) >= self.limits.connections:
            self.rejected("too many connections")
            oldest = next((one for waiting in self._waiting for one in waiting), None)
            if oldest is None:
                return False
            self._end(oldest)
        self._open[connection] = _Seat()
        self.owes(connection)
        return True

    def owes(self, connection: Connection) -> None:
        """Something is the other side's to do. Where that was so before, nothing changes."""
        self._waits(connection, self._owing)

    def is_silent(self, connection: Connection) -> None:
        """It can be spoken on, and has not been."""
        self._waits(connection, self._silent)

    def works(self, connection: Connection) -> None:
        """Its request is here, and we are about to answer."""
        self._waits(connection, None)

    def rests(self, connection: Connection) -> None:
        """Its request is answered, and the next one has not begun."""
        self._waits(connection, self._resting)

    def _waits(self, connection: Connection, among: _Waiting | None) -> None:
        seat = self._open.get(connection)
        if seat is None or seat.among is among:
            return
        if seat.among is not None:
            del seat.among[connection]
        if among is not None:
            among[connection] = self._clock()
        seat.among = among

    def holds(self, connection: Connection, more: int) -> bool:
        """Takes note of so many bytes of its body. Where all bodies are too large together, the
        connections make way that have owed longest; False where that is not enough."""
        seat = self._open.get(connection)
        if seat is None:
            return False
        self._held += more
        seat.held += more
        if self._held <= self.limits.bodies:  # as nearly always
            return True
        most = self.limits.bodies + self.limits.body()
        while self._held > most:
            oldest = next((each for each in self._owing if self._open[each].held), connection)
            if oldest is connection:
                return False
            self.rejected("too many bodies")
            self._end(oldest)
        return True

    def lets_go(self, connection: Connection) -> None:
        """Its body is needed no longer."""
        if seat := self._open.get(connection):
            self._held -= seat.held
            seat.held = 0

    def gone(self, connection: Connection) -> bool:
        """It has ended. Tells whether that is news."""
        self.lets_go(connection)
        self._waits(connection, None)
        return self._open.pop(connection, None) is not None

    def end_overdue(self) -> None:
        """Ends those that owe, are silent or rest for too long."""
        for connection in self._overdue(self._owing, self.limits.owes_s):
            self.rejected("too slow")
            self._end(connection)
        for waiting in (self._silent, self._resting):
            for connection in self._overdue(waiting, self.limits.rests_s):
                self._end(connection)

    def _overdue(self, waiting: _Waiting, longest_s: float) -> list[Connection]:
        before = self._clock() - longest_s
        return [each for each, _ in takewhile(lambda item: item[1] <= before, waiting.items())]

    def _end(self, connection: Connection) -> None:
        self.gone(connection)
        connection.cut()
