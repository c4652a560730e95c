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

import httpx
import orjson

from slurm_client import problems
from slurm_client.errors import NeedsOperator, OutcomeUnknown, RetryLater, SlurmError, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from slurm_client.tokens import TokenSource

_CONNECT_S: Final = 5.0
_AUTH_NUMBERS: Final = {1007, 6000, 6001, 6004, 9008}
_LOST: Final = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


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
    """At most `concurrency` clients of one connection each; the last one used is handed out first.

    One client a worker, since a pool gets dearer with every connection in it (CPU a request at 16
    workers: 0.65 ms so, 1.5 ms and more in one pool).
    """

    def __init__(
        self, url: str, token_source: TokenSource, *, timeout_s: float, concurrency: int
    ) -> None:
        self._server = _Server.parse(url)
        self._tokens = token_source
        self._timeout_s = timeout_s
        # None is a client that is still to be made.
        self._idle: asyncio.LifoQueue[httpx.AsyncClient | None] = asyncio.LifoQueue()
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
        for client in idle:
            self._idle.put_nowait(None)
            if client is not None:
                await client.aclose()

    async def _exchange(self, request: Request) -> Reply:
        token = self._tokens.token()
        try:
            response = await self._carry(request, token)
        except _LOST:
            # Perhaps only a kept-alive connection that the server had closed: at once, again.
            response = await self._carry_again(request, token)
        content = response.content
        parsed = problems.document(content)
        if error := problems.problem(response.status_code, content, parsed):
            raise error
        return Reply(content, parsed)

    async def _carry_again(self, request: Request, token: str) -> httpx.Response:
        try:
            return await self._carry(request, token)
        except (Unreachable, *_LOST) as error:
            # Unreachable too: the first try may have been carried out.
            lost = f"{request.text}: the connection was lost: {error}"
            raise OutcomeUnknown(lost) from error

    async def _carry(self, request: Request, token: str) -> httpx.Response:
        headers = {"X-SLURM-USER-TOKEN": token.encode("ascii", "replace").decode()}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        try:
            async with self._client() as client:
                response = await client.request(
                    request.method, request.target, headers=headers, content=request.content
                )
                if response.status_code >= 400:
                    # 26.05 sends these twice: the second must not answer the next request.
                    await client.aclose()
                return response
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            nobody = f"no connection to slurmrestd at {self._server.text}: {error}"
            raise Unreachable(nobody) from error
        except httpx.TimeoutException as error:
            waited = f"no reply within {self._timeout_s:g} s"
            raise OutcomeUnknown(f"{request.text}: {waited}") from error

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client for one exchange, which nobody else uses meanwhile."""
        client = await self._next_idle()
        try:
            client = client or self._server.open(self._timeout_s)
            yield client
        finally:
            self._idle.put_nowait(None if client is None or client.is_closed else client)

    async def _next_idle(self) -> httpx.AsyncClient | None:
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
    socket: str | None = None

    @classmethod
    def parse(cls, url: str) -> _Server:
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path and not parts.netloc:
            return cls("http://localhost", parts.path)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            wanted = "http://host:port, https://host:port or unix:///path"
            raise ValueError(f"slurmrestd's URL is {url!r}, which is none of {wanted}")
        return cls(url)

    def open(self, timeout_s: float) -> httpx.AsyncClient:
        """A client that connects when it is used first."""
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None)
        verify = self.text.startswith("https:")  # a TLS context costs 25 ms to make
        transport = httpx.AsyncHTTPTransport(verify=verify, uds=self.socket, limits=limits)
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S))
        return httpx.AsyncClient(base_url=self.text, transport=transport, timeout=timeout)
