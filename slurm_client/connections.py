"""HTTP to slurmrestd: bounded connections, the token, and what a broken exchange means.

Every request that is sent through here may be sent twice: reads, deletions, updates, and creations
under a job id of our choosing, of which Slurm refuses the second.
"""

from __future__ import annotations

import asyncio
import contextlib
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
_TIMED_OUT: Final = (httpcore.ReadTimeout, httpcore.WriteTimeout)


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
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else orjson.dumps(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply that is no error."""

    content: bytes
    document: dict[str, Any] = field(repr=False)


class Connections:
    """At most `concurrency` connections; the last one used is handed out first.

    These are httpx's own (httpcore), without what httpx builds around them: a request costs 0.4 ms of
    CPU so, 1.0 ms by an httpx client of one connection, and more in a pool of many.
    """

    def __init__(
        self, url: str, token_source: TokenSource, *, timeout_s: float, concurrency: int
    ) -> None:
        self._server = _Server.parse(url)
        self._tokens = token_source
        self._timeout_s = timeout_s
        # None is a connection that is still to be made.
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
            if connection is not None:
                await connection.aclose()

    async def _exchange(self, request: Request) -> Reply:
        token = self._tokens.token()
        try:
            status, content = await self._carry(request, token)
        except _LOST:
            # Perhaps only a kept-alive connection that the server had closed: at once, again.
            status, content = await self._carry_again(request, token)
        parsed = problems.document(content)
        if error := problems.problem(status, content, parsed):
            raise error
        return Reply(content, parsed)

    async def _carry_again(self, request: Request, token: str) -> tuple[int, bytes]:
        try:
            return await self._carry(request, token)
        except (Unreachable, *_LOST) as error:
            # Unreachable too: the first try may have been carried out.
            lost = f"{request.text}: the connection was lost: {error}"
            raise OutcomeUnknown(lost) from error

    async def _carry(self, request: Request, token: str) -> tuple[int, bytes]:
        """The status and the body of the reply."""
        sent = self._server.request(request, token, self._timeout_s)
        try:
            async with self._connection() as connection:
                response = await connection.handle_async_request(sent)
                try:
                    content = await response.aread()
                finally:
                    await response.aclose()
                if response.status >= 400:
                    # 26.05 sends these twice: the second must not answer the next request.
                    await connection.aclose()
                return response.status, content
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            nobody = f"no connection to slurmrestd at {self._server.text}: {error}"
            raise Unreachable(nobody) from error
        except _TIMED_OUT as error:
            waited = f"no reply within {self._timeout_s:g} s"
            raise OutcomeUnknown(f"{request.text}: {waited}") from error

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[httpcore.AsyncHTTPConnection]:
        """A connection for one exchange, which nobody else uses meanwhile."""
        connection = await self._next_idle()
        try:
            if connection is not None and connection.has_expired():  # the server has closed it
                await connection.aclose()
                connection = None
            connection = connection or self._server.open()
            yield connection
        finally:
            usable = connection is not None and connection.is_available()
            self._idle.put_nowait(connection if usable else None)

    async def _next_idle(self) -> httpcore.AsyncHTTPConnection | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._idle.get()
        except TimeoutError as error:
            busy = f"all connections to slurmrestd were busy for {self._timeout_s:g} s"
            raise RetryLater(busy) from error

    def _token_refused(self, error: SlurmError) -> NeedsOperator:
        return NeedsOperator(
            f"Slurm does not take the token: {self._tokens.describe()} [{error.words}]",
            number=error.number,
            http_status=error.http_status,
        )


def _about_the_token(error: SlurmError) -> bool:
    return error.http_status in {401, 511} or error.number in _AUTH_NUMBERS


@dataclass(frozen=True, slots=True)
class _Server:
    """The server: an origin, or a UNIX socket."""

    text: str
    origin: httpcore.Origin
    authority: bytes
    """What goes into the Host header."""
    prefix: str = ""
    """What comes before every path."""
    socket: str | None = None

    @classmethod
    def parse(cls, url: str) -> _Server:
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path and not parts.netloc:
            return cls(url, httpcore.Origin(b"http", b"localhost", 80), b"localhost", socket=parts.path)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            wanted = "http://host:port, https://host:port or unix:///path"
            raise ValueError(f"slurmrestd's URL is {url!r}, which is none of {wanted}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        origin = httpcore.Origin(parts.scheme.encode(), parts.hostname.encode(), port)
        authority = parts.netloc.rpartition("@")[2].encode()
        return cls(url, origin, authority, parts.path.rstrip("/"))

    def open(self) -> httpcore.AsyncHTTPConnection:
        """A connection that is made when it is used first."""
        secure = self.origin.scheme == b"https"  # a TLS context costs 25 ms to make
        return httpcore.AsyncHTTPConnection(
            self.origin,
            ssl_context=httpcore.default_ssl_context() if secure else None,
            uds=self.socket,
        )

    def request(self, request: Request, token: str, timeout_s: float) -> httpcore.Request:
        content = request.content
        headers = [
            (b"Host", self.authority),
            (b"X-SLURM-USER-TOKEN", token.encode("ascii", "replace")),
        ]
        if content is not None:
            headers += [
                (b"Content-Type", b"application/json"),
                (b"Content-Length", b"%d" % len(content)),
            ]
        origin, target = self.origin, (self.prefix + request.target).encode()
        connect_s = min(timeout_s, _CONNECT_S)
        return httpcore.Request(
            request.method,
            httpcore.URL(scheme=origin.scheme, host=origin.host, port=origin.port, target=target),
            headers=headers,
            content=content,
            extensions={"timeout": {"connect": connect_s, "read": timeout_s, "write": timeout_s}},
        )
