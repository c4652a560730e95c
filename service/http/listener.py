"""A listener: a port, an application, and limits on the clients' use of the port (`connections`).

uvicorn reads requests of any length for any time. A listener rejects a body that is too large. If the
head announces the length, the listener rejects the body before the first byte, otherwise as soon as the
body is too large.

No other module knows uvicorn. The limits need undocumented parts of uvicorn. So pyproject.toml bounds
the version, and tests/service/test_uvicorn.py fails if these parts change.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any, cast

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.http.acceptor import Accepted, Acceptor, Tls
from service.http.connections import Connections, Limits

Rejected = Callable[[str], object]
"""Called with the reason for a closed connection or a rejected request: a constant text."""

_LINGERS_S = 1.0

_WORDS = {400: "malformed", 413: "body too large", 431: "head too large", 503: "too many bodies"}


class WholeReplies(HttpToolsProtocol):
    """uvicorn's HTTP protocol, with one write for the head and the body of a reply. uvicorn makes two
    writes; each write is a system call, a packet, and a wake-up of the reader."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        gathering = _Gathering(transport)
        self.flush = gathering.flush
        super().connection_made(cast("asyncio.Transport", gathering))

    def on_response_complete(self) -> None:
        self.flush()
        super().on_response_complete()


class _Gathering:
    """A transport that collects writes until `flush`, or until the event loop's next turn."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport has another class
        self._pieces: list[bytes] = []
        self.is_closing = self._transport.is_closing  # the most frequent call: skips __getattr__

    def write(self, data: bytes) -> None:
        if not self._pieces:
            asyncio.get_running_loop().call_soon(self.flush)
        self._pieces.append(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Leaves the socket out, because uvloop makes two more sockets when uvicorn asks for
        addresses."""
        return default if name == "socket" else self._transport.get_extra_info(name, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def flush(self) -> None:
        if not self._pieces:
            return
        pieces, self._pieces = self._pieces, []
        if not self._transport.is_closing():  # the client may have gone in between
            self._transport.write(b"".join(pieces))


class _Rejection(Exception):
    """Stops the parser in a callback. `_stop` sets `_status` before raising this error."""


class Guarded(WholeReplies, Accepted):
    """HTTP on one connection, within the limits of the listener."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, connections: Connections, peer: socket.socket
    ) -> None:
        super().__init__(config, state, {})
        self._connections = connections
        self._limits = connections.limits
        self._peer = peer
        self._connected = False
        self._unfinished = True
        """True if the connection waits for the first request, or for the rest of a request. An empty
        line already begins a request."""
        self._taken = False
        """True if uvicorn has the head of the current request."""
        self._beside_body = self._body = self._most = 0
        self._status = HTTPStatus.BAD_REQUEST
        self._deaf = False

    # Connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connected = True
        self._connections.is_silent(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.gone(self)

    def cut(self) -> None:
        """Ends the connection at once. Unsent bytes are lost."""
        if self._connected:
            self.transport.abort()
            return
        with suppress(OSError):  # during the handshake there is only the socket
            self._peer.shutdown(socket.SHUT_RDWR)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connections.owes(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._waits_or_works()

    # Request

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._beside_body += len(data)
        super().data_received(data)
        if not self._deaf:  # the parser may have rejected the request
            self._has_come()

    def _has_come(self) -> None:
        if self._unfinished and self._beside_body > self._limits.head:
            self._reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            self._waits_or_works()

    def on_message_begin(self) -> None:
        self._taken = False
        if self._is_answering:  # pipelined: uvicorn keeps any number of requests
            self._stop(HTTPStatus.BAD_REQUEST)
        super().on_message_begin()
        self._unfinished, self._body = True, 0

    def on_headers_complete(self) -> None:
        self._most = self._limits.body()
        for name, value in self.headers:
            if name == b"content-length" and int(value) > self._most:
                self._stop(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        super().on_headers_complete()
        self._taken = True

    def on_body(self, body: bytes) -> None:
        self._beside_body -= len(body)
        self._body += len(body)
        if self._body > self._most:  # a chunked body announces no length
            self._stop(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if not self._connections.holds(self, len(body)):
            self._stop(HTTPStatus.SERVICE_UNAVAILABLE)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished, self._beside_body = False, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Replaces uvicorn's method. The other duties of that method are not needed: this class rejects
        pipelined requests, and `Connections` ends idle connections."""
        self.flush()
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
        self._connections.lets_go(self)
        self._waits_or_works()

    def _waits_or_works(self) -> None:
        """Notes in `Connections` whether the client or the server has to act next."""
        if self._unfinished or self.flow.write_paused or self.transport.is_closing():
            self._connections.owes(self)  # the client owes the rest of a request, or has to read a reply
        elif self._is_answering:
            self._connections.works(self)
        else:
            self._connections.rests(self)

    @property
    def _is_answering(self) -> bool:
        """True until the reply is written. A client may send the next request after the last byte of a
        reply. This does no harm, because uvicorn writes the last byte and marks the reply complete in
        one turn of the event loop."""
        return self.cycle is not None and not self.cycle.response_complete

    # Rejection

    def _stop(self, status: HTTPStatus) -> None:
        """Rejects the request in a callback of the parser. The parser then calls `send_400_response`."""
        self._status = status
        raise _Rejection

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- uvicorn's signature
        self._reject(self._status)

    def _reject(self, status: HTTPStatus) -> None:
        """Answers a request that cannot be served. The rest of the request is not read."""
        self._deaf = True
        self._connections.rejected(_WORDS[status])
        cycle, answering = self.cycle, self._is_answering
        amid_another = answering and not self._taken
        if not amid_another and not (self._taken and cycle.response_started):
            self._say(status)
        if answering and self._taken:
            # The application may wait for the rest of the body. For the application, the client is now
            # gone.
            cycle.disconnected, cycle.body = True, bytearray()
            cycle.message_event.set()
        self._linger()

    def _say(self, status: HTTPStatus) -> None:
        content = orjson.dumps({"Error": _WORDS[status]})
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + content)

    def _linger(self) -> None:
        """Drops input for a moment, and then closes the connection. If the connection were closed before
        all input is read, a client that still sends would lose the reply."""
        self._connections.lets_go(self)
        self._connections.owes(self)
        self.flow.resume_reading()
        self.loop.call_later(_LINGERS_S, self.transport.close)


class ProgramServer(uvicorn.Server):
    """uvicorn's server of an application. The program itself handles signals, because several servers
    share a process."""

    def __init__(self, application: Callable[..., Any], **options: Any) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                ws="none",
                proxy_headers=False,
                log_config=None,
                log_level="error",  # `rejected` reports errors of clients
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=5,
                **options,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def close_connections(self) -> None:
        """Ends each connection with its next reply."""
        close = (b"connection", b"close")
        self.config.encoded_headers.append(close)
        self.server_state.default_headers.append(close)


class Server(ProgramServer):
    """The server of an application behind a listener."""

    def __init__(
        self,
        application: Callable[..., Any],
        address: tuple[str, int],
        limits: Limits,
        rejected: Rejected,
        tls: Tls | None = None,
    ) -> None:
        host, port = address
        super().__init__(application, host=host, port=port, loop="uvloop", http=Guarded)
        self._limits = limits
        self._rejected = rejected
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        clock = asyncio.get_running_loop().time
        connections = self._connections = Connections(self._limits, clock, self._rejected)
        acceptor = Acceptor(self.config.host, self.config.port, connections, self._tls)
        acceptor.start(lambda p: Guarded(self.config, self.server_state, connections, p))
        self.servers = [cast("asyncio.base_events.Server", acceptor)]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Runs ten times a second."""
        self._connections.end_overdue()
        return await super().on_tick(counter)
