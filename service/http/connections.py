"""Keeps account of the connections of a listener: their number, their states, and the order in which
connections are ended. This module does no I/O.

States of a connection:

* A connection *owes* while the client has to act: to make the TLS handshake, to send the rest of a
  request, or to read a reply. The client has a deadline to act.
* A connection is *silent* before its first byte. This is normal, because clients written in Go open
  spare connections.
* A connection *rests* between two requests.
* A connection has none of these states while the server answers the request.

uvicorn's limit_concurrency is not used, because a client with many idle connections could lock out all
other clients.
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
    """Bytes of a request's head, that is, of the request without the body."""
    bodies: int = 64 << 20
    """Bytes of the bodies of all unanswered requests together. In addition, one body of the maximum
    length is allowed."""
    owes_s: float = 10.0
    """Seconds for a TLS handshake, for a request from first to last byte, and to read a reply."""
    rests_s: float = 120.0
    """Seconds before the first request, and between two requests. Go's clients, such as
    kube-scheduler and kube-apiserver, close idle connections after 90 s. The server waits longer,
    so that no request is lost."""


class Connection(Protocol):
    """A connection of the listener."""

    def cut(self) -> None:
        """Ends the connection at once."""
        ...


_Waiting = dict[Connection, float]
"""The connections in the same state, each with the start time of the state. The earliest comes first."""


@dataclass(slots=True)
class _Seat:
    """The state of an open connection."""

    held: int = 0
    """Bytes of the body."""
    among: _Waiting | None = None
    """The queue of the connection, or None while the server answers the request."""


class Connections:
    """All connections of a listener. `rejected` is called with a reason if a connection is ended or
    not accepted."""

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
        """If there are too many connections, a connection of the first queue that is not empty is
        ended."""
        self._held = 0

    def admits(self, connection: Connection) -> bool:
        """Accepts a new connection. The new connection owes its handshake. If there are too many
        connections, ends the connection that has owed longest. If no connection owes, ends the
        connection that has been silent longest, otherwise the connection that has rested longest.
        Returns False if the server answers requests on all connections."""
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
        """Notes that the server is answering a request."""
        self._waits(connection, None)

    def rests(self, connection: Connection) -> None:
        """Notes the end of a reply, before the next request."""
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
        """Notes bytes of a body. If all bodies together are too large, ends the connections that have
        owed longest. Returns False if the bodies are still too large."""
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
        """Ends connections that have owed, been silent or rested for too long."""
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
