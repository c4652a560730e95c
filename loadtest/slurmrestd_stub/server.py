"""HTTP/1.1 as slurmrestd speaks it: connections are kept, until there is an error to tell.

26.05.5 sends every error reply twice, and then closes the connection.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, cast
from urllib.parse import unquote

import httptools

from loadtest.slurmrestd_stub.face import UNSPECIFIED, Answer, Face, Request
from loadtest.slurmrestd_stub.manners import Manners, Mishap
from slurm_client.in_memory import InMemorySlurm

_TOKEN: Final = b"x-slurm-user-token"


@asynccontextmanager
async def serving(
    slurm: InMemorySlurm, manners: Manners | None = None, *, port: int = 0
) -> AsyncIterator[str]:
    """The URL of a stub on loopback, until the end of the block. Port 0 is any that is free."""
    face, open_ones = Face(slurm), set[_Connection]()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Connection(face, manners or Manners(), open_ones), "127.0.0.1", port
    )
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for connection in [*open_ones]:
            connection.abort()


class _Connection(asyncio.Protocol):
    """One connection, on which one request comes after the other's answer."""

    def __init__(self, face: Face, manners: Manners, open_ones: "set[_Connection]") -> None:
        self._face = face
        self._manners = manners
        self._open_ones = open_ones
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._target, self._token, self._body = b"", "", list[bytes]()
        self._answering: asyncio.Task[None] | None = None

    def abort(self) -> None:
        if self._answering is not None:
            self._answering.cancel()
        self._transport.abort()

    # What the event loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class
        self._open_ones.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """What it asked for is done all the same."""
        self._open_ones.discard(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._write(Answer(400, b"Unable to parse request", is_json=False))

    # What httptools says

    def on_message_begin(self) -> None:
        self._target, self._token, self._body = b"", "", []

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == _TOKEN:
            self._token = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode()
        path, _, query = self._target.decode("latin-1").partition("?")
        request = Request(method, unquote(path), query, self._token, b"".join(self._body))
        self._answering = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        loop = asyncio.get_running_loop()
        began, mishap = loop.time(), self._manners.mishap()
        try:
            unspecified = mishap is Mishap.UNSPECIFIED
            answer = UNSPECIFIED if unspecified else await self._face.answer(request)
            wait_s = self._manners.answers_at(began, answer.call, answer.entries) - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
        except Exception:
            self._transport.abort()
            raise
        if mishap is Mishap.LOST:
            self._transport.close()
        else:
            self._write(answer)

    def _write(self, answer: Answer) -> None:
        if answer.status == 0:
            self._transport.close()
            return
        if answer.status == 304:
            self._transport.write(b"HTTP/1.1 304 NOT MODIFIED\r\n\r\n")
            return
        failed = answer.status >= 400
        kind = "application/json" if answer.is_json else "text/plain"
        close = "Connection: Close\r\n" if failed else ""
        head = (
            f"HTTP/1.1 {answer.status} {'ERROR' if failed else 'OK'}\r\n{close}"
            f"Content-Length: {len(answer.content)}\r\nContent-Type: {kind}\r\n\r\n"
        ).encode()
        if not failed:
            self._transport.write(head + answer.content)
            return
        self._transport.write((head + answer.content) * 2)
        self._transport.close()
