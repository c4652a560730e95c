"""A transport for httpx: HTTP/1.1 over open connections to a server.

httpx provides the client: requests, headers, timeouts, replies, errors. This module provides the
connections, and httptools reads the replies. For a call, httpx alone runs several times as many Python
functions (tests/service/test_call_cost.py). httpx also fails on errors of slurmrestd 26.05, because
slurmrestd sends each error twice. This module does not repeat failed calls, because only the caller
knows whether a repeat is safe.
"""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit

import httptools
import httpx

LOST: Final = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
"""The connection ended, or carried something other than HTTP, before the whole reply had come. The
server may have carried out the request, or may have closed an idle connection before the request."""
BYTES_SENT: Final = "bytes_sent"
"""Name of the extension with the size of a request on the wire. Set when the request is sent."""

_IDLE_S: Final = 15.0
"""Seconds after which an unused connection may be dead, although no packet has reported the end. Such a
connection gets no more requests."""
_CLOSED_WITHIN_S: Final = 1.0
"""Seconds to wait for a server to close its side of a TLS connection."""
_MAX_UNREAD_BYTES: Final = 256 << 10
"""Limit on the bytes of a body that the reader has not taken yet. Above this limit, the connection is
not read."""
_NOT_IN_A_HEADER: Final = re.compile(rb"[^ -~]")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server: a host and port, or a UNIX socket."""

    url: str
    """The beginning of the URL of each request, without a slash at the end."""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    socket: str | None = None

    @classmethod
    def parse(cls, url: str, tls: Callable[[], ssl.SSLContext]) -> Self:
        """Reads http://host:port, https://host:port/prefix or unix:///path. Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path and not parts.netloc:
            return cls("http://localhost", socket=parts.path)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("http://host:port, https://host:port or unix:///path")
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        authority = parts.netloc.rpartition("@")[2]
        base = f"{parts.scheme}://{authority}{parts.path.rstrip('/')}"
        return cls(base, parts.hostname, port, tls() if secure else None)

    async def connect(self) -> "Connection":
        """Opens a connection. Raises OSError."""
        loop = asyncio.get_running_loop()
        if self.socket is not None:
            return (await loop.create_unix_connection(Connection, self.socket))[1]
        return (await loop.create_connection(Connection, self.host, self.port, ssl=self.tls))[1]


class PooledTransport(httpx.AsyncBaseTransport):
    """Sends calls over at most `size` connections to a server, whatever host the URL of a call names.
    Calls wait in the order of their arrival. A call gets the connection that was used last.

    A request needs the timeouts `pool`, `connect` and `read`; `read` is for the whole reply. `keeps`
    gets the status of a reply, and returns True if another request may follow on the connection.
    """

    def __init__(
        self, endpoint: Endpoint, size: int, keeps: Callable[[int], bool] = lambda _: True
    ) -> None:
        self._endpoint = endpoint
        self._keeps = keeps
        self._free = asyncio.Semaphore(size)
        self._idle: list[tuple[Connection, float]] = []
        """Unused open connections, each with the time of its last use."""
        self._ending: set[Connection] = set()
        """Closed connections, while the server has not closed the other side."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Returns a reply without headers. The rest of the body may still arrive. If nothing was sent,
        raises PoolTimeout, ConnectTimeout or ConnectError. After that, raises ReadTimeout or one of
        LOST."""
        timeouts = request.extensions["timeout"]
        if self._free.locked():
            await self._wait_for_others(timeouts["pool"])
        else:
            await self._free.acquire()  # at once
        try:
            return await self._exchange(request, timeouts)
        except BaseException:
            self._free.release()
            raise

    async def aclose(self) -> None:
        """Closes the idle connections, and returns after their end. Later calls open new connections."""
        while self._idle:
            self._end(self._idle.pop()[0])
        try:
            if self._ending:
                await asyncio.wait([each.ended for each in self._ending], timeout=_CLOSED_WITHIN_S)
        finally:
            for connection in self._ending:
                connection.abort()

    def _end(self, connection: "Connection") -> None:
        connection.close()
        if not connection.ended.done():
            self._ending.add(connection)
            connection.ended.add_done_callback(lambda _: self._ending.discard(connection))

    async def _wait_for_others(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
        except TimeoutError as error:
            raise httpx.PoolTimeout(f"all connections were busy for {seconds:g} s") from error

    async def _exchange(self, request: httpx.Request, timeouts: dict[str, Any]) -> httpx.Response:
        connection = self._kept() or await self._open(timeouts["connect"])
        wire, seconds = _wire(request, await request.aread()), timeouts["read"]
        request.extensions[BYTES_SENT] = len(wire)
        # Cheaper than asyncio.timeout, and does not cancel the task.
        alarm = asyncio.get_running_loop().call_later(seconds, connection.give_up, seconds)
        try:
            status = await connection.send(wire)
        except BaseException:  # cancelled too: the reply must not answer another request
            alarm.cancel()
            connection.abort()
            raise
        release = partial(self._release, connection, alarm, status)
        if connection.complete:  # true for most replies; a stream would be slower
            content = connection.unread()
            release()
            return httpx.Response(status, content=content)
        return httpx.Response(status, stream=_Body(connection, release))

    def _release(self, connection: "Connection", alarm: asyncio.TimerHandle, status: int) -> None:
        alarm.cancel()
        self._free.release()
        if not connection.complete:
            connection.abort()
        elif self._keeps(status):
            self._idle.append((connection, asyncio.get_running_loop().time()))
        else:
            self._end(connection)

    def _kept(self) -> "Connection | None":
        oldest = asyncio.get_running_loop().time() - _IDLE_S
        while self._idle:
            connection, since = self._idle.pop()
            if connection.usable and since > oldest:
                return connection
            self._end(connection)
        return None

    async def _open(self, seconds: float) -> "Connection":
        try:
            async with asyncio.timeout(seconds):
                return await self._endpoint.connect()
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"no connection within {seconds:g} s") from error
        except OSError as error:
            raise httpx.ConnectError(_reason(error)) from error


def _wire(request: httpx.Request, content: bytes) -> bytes:
    """Returns the bytes of a request. A character that is not allowed in a header becomes a question
    mark."""
    target = request.extensions.get("target") or request.url.raw_path
    first = b"%s %s HTTP/1.1\r\n" % (request.method.encode(), target)
    headers = [_header(*header) for header in request.headers.raw]
    return b"".join((first, *headers, b"\r\n", content))


@lru_cache(maxsize=64)
def _header(name: bytes, value: bytes) -> bytes:
    """Returns the line of a header. The cache has the few headers of most requests."""
    return b"%s: %s\r\n" % (name, _NOT_IN_A_HEADER.sub(b"?", value))


def _reason(error: OSError) -> str:
    """Returns the message of the operating system, for example "Connection refused"."""
    if error.errno is None or isinstance(error, ssl.SSLError | socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


class _Body(httpx.AsyncByteStream):
    """The body of a reply that is still arriving. When httpx closes the body, the connection goes back
    to the transport."""

    def __init__(self, connection: "Connection", release: Callable[[], None]) -> None:
        self._connection = connection
        self._release = release

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._connection.pieces()

    async def aclose(self) -> None:
        self._release()


class Connection(asyncio.Protocol):
    """A connection, for one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        """None after `close`, and after the end of the connection."""
        self._socket: asyncio.Transport | None = None
        """None after the end of the connection: both sides are closed."""
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done at the end of the connection. TLS closes each side separately, so the end comes after
        `close`."""
        self.complete = True
        """True if the whole reply to the last request has arrived."""
        self._failure: httpx.TransportError | None = None
        """The reason why the rest of the reply cannot arrive."""
        self._head: asyncio.Future[int] = self._loop.create_future()
        self._more: asyncio.Future[None] | None = None
        """Done when more of the body has arrived, or the body has failed. The reader of the body waits
        for this."""
        self._parser = httptools.HttpResponseParser(self)
        self._unread: list[bytes] = []
        self._unread_bytes = 0

    @property
    def usable(self) -> bool:
        """True if the connection may send another request."""
        return self._transport is not None and self.complete

    async def send(self, request: bytes) -> int:
        """Returns the status of the reply. Raises one of LOST, or ReadTimeout after `give_up`. A
        caller that stops waiting has to abort the connection."""
        if self._transport is None:
            raise httpx.RemoteProtocolError("the server had closed the connection")
        self._parser = httptools.HttpResponseParser(self)
        self._unread, self._unread_bytes = [], 0
        self.complete, self._failure, self._head = False, None, self._loop.create_future()
        self._transport.write(request)
        return await self._head

    def unread(self) -> bytes:
        """Returns the part of the body that arrived since the last call."""
        unread, self._unread = self._unread, []
        if self._unread_bytes > _MAX_UNREAD_BYTES and self._socket is not None:
            self._socket.resume_reading()
        self._unread_bytes = 0
        return b"".join(unread)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yields the body of the reply as it arrives. Raises as `send` does."""
        while True:
            if self._unread:
                yield self.unread()
            elif self.complete:
                return
            elif self._failure is not None:
                raise self._failure
            else:
                self._more = self._loop.create_future()
                await self._more

    def give_up(self, after_s: float) -> None:
        """Ends the current exchange without its reply."""
        self._fail(httpx.ReadTimeout(f"no reply within {after_s:g} s"))

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def abort(self) -> None:
        """Closes both sides at once. A server may never close its side of TLS."""
        self._transport = None
        if self._socket is not None:
            self._socket.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of another class
        self._transport = self._socket = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.complete:  # the second copy of an error
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(httpx.RemoteProtocolError(f"not HTTP: {error}"))
            self.close()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._socket = None
        if not self.ended.done():
            self.ended.set_result(None)
        self._fail(httpx.ReadError(str(exc or "closed by the server")))

    def _fail(self, error: httpx.TransportError) -> None:
        if self.complete or self._failure is not None:
            return
        self._failure = error
        if not self._head.done():
            self._head.set_exception(error)
        self._wake()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    # Called by httptools

    def on_message_begin(self) -> None:
        if self.complete:  # the second copy of an error: the parser stops, and the connection ends
            raise httpx.RemoteProtocolError("a reply without a request")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and not self._head.done():  # lower statuses only announce the reply
            self._head.set_result(status)

    def on_body(self, body: bytes) -> None:
        self._unread.append(body)
        self._unread_bytes += len(body)
        if self._unread_bytes > _MAX_UNREAD_BYTES and self._socket is not None:
            self._socket.pause_reading()

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            return
        self.complete = True
        if not self._parser.should_keep_alive():
            self.close()
