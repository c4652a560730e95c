"""One HTTP/1.1 connection: a request goes out, its reply comes in, one after the other.

httptools reads the replies. A general client costs many times as much CPU (a request of 0.5 kB and a
reply of 3 kB: 0.02 ms here, 0.4 ms by httpcore, 1.0 ms by httpx), and aiohttp cannot read slurmrestd
26.05's errors, which come twice. What an error means is for `connections` to say.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import httptools

if TYPE_CHECKING:
    import ssl


class Lost(Exception):
    """The connection ended, or made no sense, before the whole reply was there."""


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
        if status >= 400 or not self._parser.should_keep_alive():
            # 26.05 sends errors twice: the second must not answer the next request.
            self.close()
        if answer is not None and not answer.done():
            answer.set_result((status, b"".join(self._body)))
