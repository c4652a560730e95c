"""The connections of a listener: their number, their states, and the first to be closed. No I/O.

A connection *owes* while the client has to act: the TLS handshake, the rest of a request, reading a
reply. There is a deadline for that. A connection is *silent* before its first byte: clients written in
Go open more connections than they use. A connection *rests* between two requests, and has none of these
states while its request is being answered.

uvicorn's limit_concurrency is not used: one client with many idle connections could silence all others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the use of a listener by its clients."""

    connections: int
    body: Callable[[], int]
    """Returns the current limit on a request's body in bytes."""
    head: int = 8 << 10
    """Bytes of a request without its body."""
    bodies: int = 64 << 20
    """Bytes of the bodies of all unanswered requests; one of the longest bodies fits in addition."""
    owes_s: float = 10.0
    """Seconds for a TLS handshake, for a request from first to last byte, and to read a reply."""
    rests_s: float = 120.0
    """Seconds before the first request, and between two. Go's clients, such as kube-scheduler and
    kube-apiserver, close idle connections after 90 s: earlier, so that no request is lost."""


class Connection(Protocol):
    """A connection of the listener."""

    def cut(self) -> None:
        """Ends the connection at once."""
        ...


_Waiting = dict[Connection, float]
"""Connections in one state and the time of its begin, the earliest first."""


@dataclass(slots=True)
class _Seat:
    """The state of an open connection."""

    held: int = 0
    """Bytes of the body."""
    among: _Waiting | None = None
    """The queue of the connection; None while its request is being answered."""


class Connections:
    """All connections of a listener. `rejected` is called with the reason for a connection that is ended
    or not accepted."""

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
        """Connections of the first queue are ended first."""
        self._held = 0

    def admits(self, connection: Connection) -> bool:
        """Accepts a new connection, which owes its handshake. With too many connections, ends the
        connection that has owed longest, else was silent longest, else has rested longest. Returns False
        if the requests of all are being answered."""
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
        """Notes that the client has to act."""
        self._waits(connection, self._owing)

    def is_silent(self, connection: Connection) -> None:
        """Notes that the first request may come."""
        self._waits(connection, self._silent)

    def works(self, connection: Connection) -> None:
        """Notes that a request is being answered."""
        self._waits(connection, None)

    def rests(self, connection: Connection) -> None:
        """Notes that a request is answered, and the next request has not begun."""
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
        """Notes bytes of a body. If all bodies are too large together, ends the connections that have
        owed longest. Returns False if that is not enough."""
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
        """Notes that the body is no longer needed."""
        if seat := self._open.get(connection):
            self._held -= seat.held
            seat.held = 0

    def gone(self, connection: Connection) -> bool:
        """Notes the end of a connection. Returns False for a second call."""
        self.lets_go(connection)
        self._waits(connection, None)
        return self._open.pop(connection, None) is not None

    def end_overdue(self) -> None:
        """Ends connections that owe, are silent or rest too long."""
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
