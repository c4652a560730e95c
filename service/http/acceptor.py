"""Accepts the connections of a port. A connection counts toward the limit from the start of its TLS
handshake. Each handshake uses the newest certificate."""

import asyncio
import socket
import ssl
from collections.abc import Callable

import structlog

from service.http.connections import Connections

log = structlog.get_logger()

Tls = Callable[[], ssl.SSLContext | None]
"""Returns the newest TLS context, or None before the first context exists."""

_BACKLOG = 2048
_AT_ONCE = 64
_LATER_S = 1.0  # if the process has no file descriptors left
_SHUTDOWN_S = 2.0


class Accepted(asyncio.Protocol):
    """A connection that a port has accepted."""

    def cut(self) -> None:
        """Ends the connection at once. Unsent bytes are lost."""
        raise NotImplementedError


class Acceptor:
    """Accepts the connections of a port. Takes the place of uvicorn's asyncio.Server."""

    def __init__(self, host: str, port: int, connections: Connections, tls: Tls | None) -> None:
        self._host = host
        self._port = port
        self._connections = connections
        self._tls = tls
        self._handshakes: dict[asyncio.Task[None], Accepted] = {}
        self.sockets: list[socket.socket] = []

    def start(self, make: Callable[[socket.socket], Accepted]) -> None:
        """Listens. Raises OSError if the port cannot be bound."""
        self._loop = asyncio.get_running_loop()
        self._make = make
        found = socket.getaddrinfo(
            self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, address in dict.fromkeys((family, address[:2]) for family, *_, address in found):
            listening = socket.create_server(address, family=family, backlog=_BACKLOG)
            listening.setblocking(False)
            self.sockets.append(listening)
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Stops accepting."""
        for listening in self.sockets:
            self._loop.remove_reader(listening)
            listening.close()
        for connection in self._handshakes.values():
            connection.cut()

    async def wait_closed(self) -> None:
        """Returns when no handshake is under way."""
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        try:
            for _ in range(_AT_ONCE):
                self._take(listening.accept()[0])
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.warning("no connection can be accepted", port=self._port, error=str(error))
            self._loop.remove_reader(listening)
            self._loop.call_later(_LATER_S, self._again, listening)

    def _again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._accept, listening)

    def _take(self, peer: socket.socket) -> None:
        context = self._tls() if self._tls is not None else None
        connection = self._make(peer)
        if (self._tls is not None and context is None) or not self._connections.admits(connection):
            peer.close()
            return
        peer.setblocking(False)
        task = self._loop.create_task(self._serve(connection, peer, context))
        self._handshakes[task] = connection
        task.add_done_callback(self._handshakes.pop)

    async def _serve(
        self, connection: Accepted, peer: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        seconds = 2 * self._connections.limits.owes_s  # `end_overdue` ends the connection earlier
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                peer,
                ssl=context,
                ssl_handshake_timeout=seconds if context is not None else None,
                ssl_shutdown_timeout=_SHUTDOWN_S if context is not None else None,
            )
        except OSError:
            if self._connections.gone(connection) and context is not None:
                self._connections.rejected("TLS handshake failed")
