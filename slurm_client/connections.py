"""HTTP to slurmrestd: bounded connections, the token, and what a broken exchange means.

Every request that is sent through here may be sent twice: reads, deletions, updates, and creations
under a job id of our choosing, of which Slurm refuses the second.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

import httpcore
import orjson

from slurm_client import problems
from slurm_client.errors import NeedsOperator, OutcomeUnknown, RetryLater, SlurmError, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from slurm_client.tokens import TokenSource

_CONNECT_S: Final = 5.0
_AUTH_NUMBERS: Final = {1007, 6000, 6001, 6004, 9008}
_LOST: Final = (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError)


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `path` from the root, `query` in order, `body` to be sent as JSON."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def target(self) -> bytes:
        return f"{self.path}?{urlencode(self.query)}".encode() if self.query else self.path.encode()

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else orjson.dumps(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply that is no error."""

    content: bytes
    document: dict[str, Any] = field(repr=False)


class Connections:
    """At most `concurrency` connections, of which the last one used is handed out first.

    Each is one httpcore connection, since no more is needed than HTTP/1.1 on a socket: httpx's client
    and pools cost two to three times the CPU a request (measured at 8 workers under uvloop: 0.96 ms
    with a client each, 0.38 so).
    """

    def __init__(
        self, url: str, token_source: TokenSource, *, timeout_s: float, concurrency: int
    ) -> None:
        self._server = _Server.parse(url)
        self._tokens = token_source
        self._timeout_s = timeout_s
        # None is a connection that is still to be opened.
        self._idle: asyncio.LifoQueue[httpcore.AsyncHTTPConnection | None] = asyncio.LifoQueue()
        for _ in range(concurrency):
            self._idle.put_nowait(None)

    async def send(self, request: Request) -> Reply:
        """The reply, or one of `errors`. After a refused token the file is read again, once."""
        try:
            return await self._exchange(request)
        except NeedsOperator as error:
            if not _about_the_token(error):
                raise
            if not self._tokens.refresh():
                raise self._token_refused(error) from error
        try:
            return await self._exchange(request)
        except NeedsOperator as error:
            raise self._token_refused(error) from error

    async def aclose(self) -> None:
        """Close the connections that no call is using; later calls open new ones."""
        idle = [self._idle.get_nowait() for _ in range(self._idle.qsize())]
        for connection in idle:
            self._idle.put_nowait(None)
            await _close(connection)

    async def _exchange(self, request: Request) -> Reply:
        token = self._tokens.token()
        try:
            response = await self._carry(request, token)
        except _LOST:
            # Perhaps only a kept-alive connection that the server had closed: at once, again.
            response = await self._carry_again(request, token)
        content = response.content
        parsed = problems.document(content)
        if error := problems.problem(response.status, content, parsed):
            raise error
        return Reply(content, parsed)

    async def _carry_again(self, request: Request, token: str) -> httpcore.Response:
        try:
            return await self._carry(request, token)
        except (Unreachable, *_LOST) as error:
            # Unreachable too: the first try may have been carried out.
            lost = f"{request.text}: the connection was lost: {error}"
            raise OutcomeUnknown(lost) from error

    async def _carry(self, request: Request, token: str) -> httpcore.Response:
        try:
            async with self._connection() as connection:
                response = await connection.request(
                    request.method,
                    self._server.url(request.target),
                    headers=self._server.headers(token, request.content),
                    content=request.content,
                    extensions={"timeout": self._timeouts()},
                )
                if response.status >= 400:
                    # 26.05 sends these twice: the second must not answer the next request.
                    await connection.aclose()
                return response
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            nobody = f"no connection to slurmrestd at {self._server.text}: {error}"
            raise Unreachable(nobody) from error
        except httpcore.TimeoutException as error:
            waited = f"no reply within {self._timeout_s:g} s"
            raise OutcomeUnknown(f"{request.text}: {waited}") from error

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[httpcore.AsyncHTTPConnection]:
        """A connection for one exchange; whatever goes wrong with it, it is not used again."""
        connection = await self._next_idle()
        try:
            if connection is None or not connection.is_available() or connection.has_expired():
                await _close(connection)
                connection = self._server.open()
            yield connection
        except BaseException:
            await _close(connection)
            connection = None
            raise
        finally:
            self._idle.put_nowait(connection)

    async def _next_idle(self) -> httpcore.AsyncHTTPConnection | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._idle.get()
        except TimeoutError as error:
            busy = f"all connections to slurmrestd were busy for {self._timeout_s:g} s"
            raise RetryLater(busy) from error

    def _timeouts(self) -> dict[str, float]:
        limit = self._timeout_s
        return {"connect": min(limit, _CONNECT_S), "read": limit, "write": limit}

    def _token_refused(self, error: SlurmError) -> NeedsOperator:
        return NeedsOperator(
            f"Slurm does not take the token: {self._tokens.describe()} [{error.words}]",
            number=error.number,
            http_status=error.http_status,
        )


def _about_the_token(error: SlurmError) -> bool:
    return error.http_status in {401, 511} or error.number in _AUTH_NUMBERS


async def _close(connection: httpcore.AsyncHTTPConnection | None) -> None:
    if connection:
        await connection.aclose()


@dataclass(frozen=True, slots=True)
class _Server:
    """The server: an origin, or a UNIX socket."""

    text: str
    origin: httpcore.Origin
    host: bytes
    socket: str | None = None

    @classmethod
    def parse(cls, url: str) -> _Server:
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path and not parts.netloc:
            here = httpcore.Origin(b"http", b"localhost", 80)
            return cls(url, here, b"localhost", parts.path)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            wanted = "http://host:port, https://host:port or unix:///path"
            raise ValueError(f"slurmrestd's URL is {url!r}, which is none of {wanted}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        origin = httpcore.Origin(parts.scheme.encode(), parts.hostname.encode(), port)
        return cls(url, origin, parts.netloc.rpartition("@")[2].encode())

    def open(self) -> httpcore.AsyncHTTPConnection:
        """A connection that connects when it is used first."""
        secure = self.origin.scheme == b"https"
        context = ssl.create_default_context() if secure else None
        return httpcore.AsyncHTTPConnection(self.origin, ssl_context=context, uds=self.socket)

    def url(self, target: bytes) -> httpcore.URL:
        origin = self.origin
        return httpcore.URL(scheme=origin.scheme, host=origin.host, port=origin.port, target=target)

    def headers(self, token: str, content: bytes | None) -> list[tuple[bytes, bytes]]:
        headers = [(b"Host", self.host), (b"X-SLURM-USER-TOKEN", token.encode("ascii", "replace"))]
        if content is None:
            return headers
        length = str(len(content)).encode()
        return [*headers, (b"Content-Type", b"application/json"), (b"Content-Length", length)]
