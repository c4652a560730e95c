"""A listener: a port, an application, and limits on what a stranger may use of it (`connections`).

uvicorn reads all that it is sent, for as long as that takes. A listener rejects a request before it
reads it if the head says that it is too large, and otherwise as soon as it is too large.

No other module knows uvicorn. The limits need parts that uvicorn does not document: pyproject.toml
bounds its version, and tests/service/test_uvicorn.py fails when these parts change.
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

from service.acceptor import Accepted, Acceptor, Tls
from service.connections import Connections, Limits

Rejected = Callable[[str], object]
"""Is called with the reason when a connection is ended or a request rejected: one of a few constant
texts."""

_LINGERS_S = 1.0

_WORDS = {
    400: "malformed",
    413: "body too large",
    431: "head too large",
    503: "too many bodies",
}


class WholeReplies(HttpToolsProtocol):
    """uvicorn's HTTP protocol, but a reply's head and body are written together: uvicorn writes them
    apart, and each write is a system call, a packet, and one wake-up of the reader."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        gathering = _Gathering(transport)
        self.flush = gathering.flush
        super().connection_made(cast("asyncio.Transport", gathering))

    def on_response_complete(self) -> None:
        self.flush()
        super().on_response_complete()


class _Gathering:
    """A transport that collects what is written, and sends it when it is flushed or in the event loop's
    next turn."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class
        self._pieces: list[bytes] = []
        self.is_closing = self._transport.is_closing  # what is called most often, without a detour

    def write(self, data: bytes) -> None:
        if not self._pieces:
            asyncio.get_running_loop().call_soon(self.flush)
        self._pieces.append(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Not the socket: uvicorn asks it for its addresses, for which uvloop makes two more sockets."""
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
    """Ends the parser's work; the status is noted before."""


class Guarded(WholeReplies, Accepted):
    """HTTP on one connection, within its listener's limits."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, connections: Connections, peer: socket.socket
    ) -> None:
        super().__init__(config, state, {})
        self._connections = connections
        self._limits = connections.limits
        self._peer = peer
        self._connected = False
        self._unfinished = True
        """Whether a request is still to come or to end: on a new connection the first one. A few bytes
        of it are enough: an empty line will do."""
        self._taken = False
        """Whether uvicorn has the head of the request that is being read."""
        self._beside_body = self._body = self._most = 0
        self._status = HTTPStatus.BAD_REQUEST
        self._deaf = False

    # About the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connected = True
        self._connections.is_silent(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.gone(self)

    def cut(self) -> None:
        """Ends it at once, unsent bytes included."""
        if self._connected:
            self.transport.abort()
            return
        with suppress(OSError):  # during the handshake the socket alone is ours
            self._peer.shutdown(socket.SHUT_RDWR)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connections.owes(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._waits_or_works()

    # About a request

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._beside_body += len(data)
        super().data_received(data)
        if not self._deaf:  # the parser may have refused it
            self._has_come()

    def _has_come(self) -> None:
        if self._unfinished and self._beside_body > self._limits.head:
            self._reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            self._waits_or_works()

    def on_message_begin(self) -> None:
        self._taken = False
        if self._is_answering:  # pipelined: uvicorn would keep any number of them
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
        if self._body > self._most:  # a chunked one says nothing of its length before
            self._stop(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if not self._connections.holds(self, len(body)):
            self._stop(HTTPStatus.SERVICE_UNAVAILABLE)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished, self._beside_body = False, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Replaces uvicorn's method, which goes on with a pipelined request (there is none here), or
        sets a timer for a connection that rests too long (`Connections` ends it)."""
        self.flush()
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
        self._connections.lets_go(self)
        self._waits_or_works()

    def _waits_or_works(self) -> None:
        """Tells `Connections` whether the client or the server has to act next."""
        if self._unfinished or self.flow.write_paused or self.transport.is_closing():
            self._connections.owes(self)  # the rest of a request, or to read a reply
        elif self._is_answering:
            self._connections.works(self)
        else:
            self._connections.rests(self)

    @property
    def _is_answering(self) -> bool:
        """Whether a reply is not written yet. uvicorn marks it complete in the turn of the event loop
        in which it writes its last byte, so that a client that has read a reply may send the next
        request."""
        return self.cycle is not None and not self.cycle.response_complete

    # About a rejection

    def _stop(self, status: HTTPStatus) -> None:
        """Rejects the request in a callback of the parser, which then ends with `send_400_response`."""
        self._status = status
        raise _Rejection

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- uvicorn's
        self._reject(self._status)

    def _reject(self, status: HTTPStatus) -> None:
        """Answers a request that cannot be served, and reads no more of it."""
        self._deaf = True
        self._connections.rejected(_WORDS[status])
        cycle, answering = self.cycle, self._is_answering
        amid_another = answering and not self._taken
        if not amid_another and not (self._taken and cycle.response_started):
            self._say(status)
        if answering and self._taken:
            # For the part that waits for the rest of the body: as if the client had gone.
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
        """Drops what still comes, for a moment: where a connection is closed before it is read empty, a
        client that is still sending loses the reply."""
        self._connections.lets_go(self)
        self._connections.owes(self)
        self.flow.resume_reading()
        self.loop.call_later(_LINGERS_S, self.transport.close)


class ProgramServer(uvicorn.Server):
    """uvicorn's server of an application. Several servers share a process: signals are the program's to
    handle."""

    def __init__(self, application: Callable[..., Any], **options: Any) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                ws="none",
                proxy_headers=False,
                log_config=None,
                log_level="error",  # what strangers send is told by `rejected`
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
        """Ten times a second."""
        self._connections.end_overdue()
        return await super().on_tick(counter)
