"""HTTP/1.1 over connections that are kept open: on each, one request and its reply at a time.

The pool knows nothing of Slurm. httptools reads the replies. A general client costs many times as much
CPU (a request of 0.5 kB and a reply of 3 kB: 0.02 ms here, 0.4 ms by httpcore, 1.0 ms by httpx), and
aiohttp cannot read slurmrestd 26.05's errors, which come twice. The caller decides what a failure
means.
"""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self, cast
from urllib.parse import urlsplit

import httptools

_IDLE_S: Final = 15.0
"""Seconds: a connection that was unused for longer may be dead without notice."""
_CLOSED_WITHIN_S: Final = 1.0
"""For how long a server is waited for that does not end its side of a TLS connection."""
_NOT_IN_A_HEADER: Final = re.compile(r"[^ -~]")


class Busy(Exception):
    """No connection became free in time: nothing was sent."""


class NoConnection(Exception):
    """No connection could be made: nothing was sent."""


class Lost(Exception):
    """The connection ended, or made no sense, before the whole reply was there."""


class Silent(Exception):
    """No reply came in time."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server: a host and port, or a UNIX socket."""

    authority: str
    """What goes into the Host header."""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    prefix: str = ""
    """What comes before every path."""
    socket: str | None = None

    @classmethod
    def parse(cls, url: str, tls: Callable[[], ssl.SSLContext]) -> Self:
        """Reads http://host:port, https://host:port/prefix or unix:///path. Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path and not parts.netloc:
            return cls("localhost", socket=parts.path)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("http://host:port, https://host:port or unix:///path")
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        authority = parts.netloc.rpartition("@")[2]
        prefix = parts.path.rstrip("/")
        return cls(authority, parts.hostname, port, tls() if secure else None, prefix)

    async def connect(self) -> "Connection":
        """Opens a connection. Raises OSError."""
        loop = asyncio.get_running_loop()
        if self.socket is not None:
            return (await loop.create_unix_connection(Connection, self.socket))[1]
        return (await loop.create_connection(Connection, self.host, self.port, ssl=self.tls))[1]

    def request(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None
    ) -> bytes:
        """The bytes of a request. `target` is quoted already; a character that cannot be in a header
        becomes a question mark."""
        lines = [f"{method} {self.prefix}{target} HTTP/1.1", f"Host: {self.authority}"]
        lines += [_header(*header) for header in headers.items()]
        if content is not None:
            lines.append(f"Content-Length: {len(content)}")
        return "\r\n".join((*lines, "", "")).encode() + (content or b"")


@lru_cache(maxsize=16)
def _header(name: str, value: str) -> str:
    """The headers, which repeat: the same few are sent all the time, with the same token."""
    return f"{name}: {_NOT_IN_A_HEADER.sub('?', value)}"


class Pool:
    """At most `size` connections to one server. The last one used is handed out first, to the call that
    has waited longest.

    A call waits at most `timeout_s` for a connection, and as long for the reply; `connect_s` for one to
    be made. `keeps` tells by its status whether another request may follow a reply.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        size: int,
        *,
        timeout_s: float,
        connect_s: float,
        keeps: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self.endpoint = endpoint
        self.timeout_s = timeout_s
        self._connect_s = min(timeout_s, connect_s)
        self._keeps = keeps
        self._free = asyncio.Semaphore(size)
        self._idle: list[tuple[Connection, float]] = []
        """Open connections that no call is using, and since when."""
        self._ending: set[Connection] = set()
        """Closed ones, of which the server has not said its last word."""

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Returns the status and the body of the reply. Raises Busy, NoConnection, Lost, Silent."""
        if self._free.locked():
            await self._wait_for_others()
        else:
            await self._free.acquire()  # at once
        try:
            return await self._exchange(request)
        finally:
            self._free.release()

    async def aclose(self) -> None:
        """Closes the connections that no call is using, and returns when they have ended; later calls
        open new ones."""
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

    async def _wait_for_others(self) -> None:
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._free.acquire()
        except TimeoutError as error:
            raise Busy(f"all connections were busy for {self.timeout_s:g} s") from error

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        connection, loop = self._kept() or await self._open(), asyncio.get_running_loop()
        # Cheaper than asyncio.timeout, which has a task cancelled and not a reply given up.
        alarm = loop.call_later(self.timeout_s, connection.give_up, self.timeout_s)
        try:
            status, body = await connection.exchange(request)
        except BaseException:  # cancelled too: what is still to come must not answer another request
            connection.abort()
            raise
        finally:
            alarm.cancel()
        if self._keeps(status):
            self._idle.append((connection, loop.time()))
        else:
            self._end(connection)
        return status, body

    def _kept(self) -> "Connection | None":
        oldest = asyncio.get_running_loop().time() - _IDLE_S
        while self._idle:
            connection, since = self._idle.pop()
            if connection.usable and since > oldest:
                return connection
            self._end(connection)
        return None

    async def _open(self) -> "Connection":
        try:
            async with asyncio.timeout(self._connect_s):
                return await self.endpoint.connect()
        except TimeoutError as error:
            raise NoConnection(f"no connection within {self._connect_s:g} s") from error
        except OSError as error:
            raise NoConnection(_reason(error)) from error


def _reason(error: OSError) -> str:
    """Returns the system's words: "Connection refused"."""
    if error.errno is None or isinstance(error, ssl.SSLError | socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


class Connection(asyncio.Protocol):
    """One connection, for one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        """None once nothing may be sent any more."""
        self._socket: asyncio.Transport | None = None
        """The same, until neither side says anything any more."""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once neither side says anything any more: TLS has a last word, after `close`."""
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._transport is not None and self._answer is None

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Returns the status and the body of the reply. Raises Lost, and Silent once it is given up. A
        caller that does not wait any more has to close the connection."""
        if self._transport is None:
            raise Lost("the server had closed it")
        self._answer = asyncio.get_running_loop().create_future()
        self._parser, self._body = httptools.HttpResponseParser(self), []
        self._transport.write(request)
        return await self._answer

    def give_up(self, after_s: float) -> None:
        """Ends the current exchange without its reply."""
        self._fail(Silent(f"no reply within {after_s:g} s"))

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def abort(self) -> None:
        """Closes it without TLS's last words, which a server may leave out."""
        self._transport = None
        if self._socket is not None:
            self._socket.abort()

    # What the event loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are of no such class
        self._transport = self._socket = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # nobody asked: an error that is sent twice
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(Lost(f"this is no HTTP: {error}"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._socket = None
        if not self.ended.done():
            self.ended.set_result(None)
        self._fail(Lost(str(exc or "closed by the server")))

    def _fail(self, error: Lost | Silent) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)

    # What httptools says

    def on_message_begin(self) -> None:
        if self._answer is None:
            self.close()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # it says that the reply is still to come
            self._body = []
            return
        answer, self._answer = self._answer, None
        if not self._parser.should_keep_alive():
            self.close()
        if answer is not None and not answer.done():
            answer.set_result((status, b"".join(self._body)))
