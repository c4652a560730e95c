"""HTTP/1.1 over kept connections: a request goes out, its reply comes in, one after the other.

It knows nothing of Slurm. httptools reads the replies. A general client costs many times as much CPU (a
request of 0.5 kB and a reply of 3 kB: 0.02 ms here, 0.4 ms by httpcore, 1.0 ms by httpx), and aiohttp
cannot read slurmrestd 26.05's errors, which come twice. What a failure means is for the caller to say.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

import httptools

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable


class Busy(Exception):
    """No connection became free in time: nothing was sent."""


class NoConnection(Exception):
    """No connection could be made: nothing was sent."""


class Lost(Exception):
    """The connection ended, or made no sense, before the whole reply was there."""


class Silent(Exception):
    """No reply came in time."""


class Pool:
    """At most `size` connections; the last one used is handed out first.

    A call waits at most `timeout_s` for a connection, and as long for the reply; `connect_s` for one to
    be made. `keeps` tells by its status whether another request may follow a reply.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        size: int,
        *,
        timeout_s: float,
        connect_s: float,
        keeps: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._connect = connect
        self._timeout_s = timeout_s
        self._connect_s = min(timeout_s, connect_s)
        self._keeps = keeps
        # None is a connection that is still to be made.
        self._idle: asyncio.LifoQueue[Connection | None] = asyncio.LifoQueue()
        for _ in range(size):
            self._idle.put_nowait(None)

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body of the reply. Raises Busy, NoConnection, Lost, Silent."""
        async with self._connection() as connection:
            try:
                async with asyncio.timeout(self._timeout_s):
                    status, body = await connection.exchange(request)
            except TimeoutError as error:
                raise Silent(f"no reply within {self._timeout_s:g} s") from error
            if not self._keeps(status):
                connection.close()
            return status, body

    async def aclose(self) -> None:
        """Close the connections that no call is using; later calls open new ones."""
        idle = [self._idle.get_nowait() for _ in range(self._idle.qsize())]
        for connection in idle:
            self._idle.put_nowait(None)
            if connection is not None:
                connection.close()

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        """A connection for one exchange, which nobody else uses meanwhile."""
        connection = await self._next_idle()
        try:
            if connection is None or not connection.usable:
                connection = await self._open()
            yield connection
        finally:
            usable = connection is not None and connection.usable
            self._idle.put_nowait(connection if usable else None)

    async def _open(self) -> Connection:
        try:
            async with asyncio.timeout(self._connect_s):
                return await self._connect()
        except OSError as error:  # TimeoutError is one
            raise NoConnection(repr(error)) from error

    async def _next_idle(self) -> Connection | None:
        try:
            return self._idle.get_nowait()
        except asyncio.QueueEmpty:
            pass
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._idle.get()
        except TimeoutError as error:
            raise Busy(f"all connections were busy for {self._timeout_s:g} s") from error


class Connection(asyncio.Protocol):
    """Made by `to_host` and `to_socket`, which raise OSError."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []

    @classmethod
    async def to_host(cls, host: str, port: int, tls: ssl.SSLContext | None) -> Connection:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(cls, host, port, ssl=tls))[1]

    @classmethod
    async def to_socket(cls, path: str) -> Connection:
        return (await asyncio.get_running_loop().create_unix_connection(cls, path))[1]

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._transport is not None and self._answer is None

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body of the reply. Raises Lost. One that is cancelled closes."""
        if self._transport is None:
            raise Lost("the server had closed it")
        answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._parser, self._body = httptools.HttpResponseParser(self), []
        self._transport.write(request)
        try:
            return await answer
        finally:
            if self._answer is not None:
                self.close()

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    # What the event loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # nobody asked: an error that is sent twice
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"this is no HTTP: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(str(exc or "closed by the server"))

    def _fail(self, why: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(Lost(why))

    # What httptools says

    def on_message_begin(self) -> None:
        if self._answer is None:
            self.close()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        answer, self._answer = self._answer, None
        status = self._parser.get_status_code()
        if not self._parser.should_keep_alive():
            self.close()
        if answer is not None and not answer.done():
            answer.set_result((status, b"".join(self._body)))
