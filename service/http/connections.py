"""The connections of a listener: how many are open, what each waits for, and which is closed first.

A connection *owes* while its client has something to do: the TLS handshake, the rest of a request,
reading a reply. There is a deadline for that. It is *silent* before its first byte: clients written in
Go open more connections than they use, and keep the others. It *rests* between two requests. While its
request is being answered it has none of these states. No I/O here: the clock is passed in, and a
connection is ended by `cut`.

uvicorn's limit_concurrency is not used: while too many connections are open, idle ones included, it
rejects the requests of all of them, so that one client can silence all others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a listener its clients may use."""

    connections: int
    body: Callable[[], int]
    """Bytes of the longest body of a request, as the limit is now."""
    head: int = 8 << 10
    """Bytes of a request without its body."""
    bodies: int = 64 << 20
    """Bytes of the bodies of all requests that are not answered yet; one of the longest bodies fits in
    addition."""
    owes_s: float = 10.0
    """For a TLS handshake, from a request's first byte to its last, and to read a reply."""
    rests_s: float = 120.0
    """Before the first request, and between two. Go's clients, which kube-scheduler and kube-apiserver
    are, leave after 90 s: before us, or they would send a request into a connection that we end."""


class Connection(Protocol):
    """A connection, as far as this module needs one."""

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
    """The queue in which it waits; None while its request is being answered."""


class Connections:
    """All connections of a listener. `rejected` is called with the reason when one is ended or not
    accepted."""

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
        """Accepts a new connection, which owes its handshake. Where there are too many, the connection
        is ended that has owed longest, else been silent longest, else rested longest. Returns False
        where the requests of all are being answered."""
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
        """Notes that the client has something to do. Where it had before, nothing changes."""
        self._waits(connection, self._owing)

    def is_silent(self, connection: Connection) -> None:
        """Notes that a request can come on the connection, and none has come yet."""
        self._waits(connection, self._silent)

    def works(self, connection: Connection) -> None:
        """Notes that its request has arrived and is about to be answered."""
        self._waits(connection, None)

    def rests(self, connection: Connection) -> None:
        """Notes that its request is answered, and the next one has not begun."""
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
        """Notes so many bytes of its body. Where all bodies together are too large, the connections are
        ended that have owed longest. Returns False where that is not enough."""
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
        """Notes that its body is not needed any more."""
        if seat := self._open.get(connection):
            self._held -= seat.held
            seat.held = 0

    def gone(self, connection: Connection) -> bool:
        """Notes that the connection has ended. Tells whether that is news."""
        self.lets_go(connection)
        self._waits(connection, None)
        return self._open.pop(connection, None) is not None

    def end_overdue(self) -> None:
        """Ends connections that owe, are silent or rest for too long."""
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
