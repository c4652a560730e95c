"""HTTP to slurmrestd: bounded connections, the token, and what a broken exchange means.

Every request that is sent through here may be sent twice: reads, deletions, updates, and creations
under a job id of our choosing, of which Slurm refuses the second.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import orjson

from slurm_client import problems
from slurm_client.errors import NeedsOperator, OutcomeUnknown, RetryLater, SlurmError, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from slurm_client.tokens import TokenSource

_CONNECT_S = 5.0
_AUTH_NUMBERS = {1007, 6000, 6001, 6004, 9008}


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


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply that is no error."""

    content: bytes
    document: dict[str, Any] = field(repr=False)


class Connections:
    """At most `concurrency` connections, each a client of its own.

    One httpx pool with many connections costs several times more CPU a request than as many
    clients with one connection (measured: 1.5 ms against 0.65 at 16). The last one used is handed
    out first, so that few stay warm. 26.05 sends an error reply twice and closes the connection:
    httpx copes.
    """

    def __init__(
        self, url: str, token_source: TokenSource, *, timeout_s: float, concurrency: int
    ) -> None:
        self._where = _Where.parse(url)
        self._tokens = token_source
        self._timeout_s = timeout_s
        self._idle: asyncio.LifoQueue[httpx.AsyncClient | None] = asyncio.LifoQueue()
        for _ in range(concurrency):
            self._idle.put_nowait(None)
        self._clients: list[httpx.AsyncClient] = []

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
        """Close all connections; calls still under way end as OutcomeUnknown."""
        clients, self._clients = self._clients, []
        for client in clients:
            await client.aclose()

    async def _exchange(self, request: Request) -> Reply:
        token = self._tokens.token()
        async with self._client() as client:
            try:
                response = await self._carry(client, request, token)
            except _LOST:
                # Perhaps only a kept-alive connection that the server had closed: at once, again.
                response = await self._carry_again(client, request, token)
        content = response.content
        parsed = problems.document(content)
        if error := problems.problem(response.status_code, content, parsed):
            raise error
        return Reply(content, parsed)

    async def _carry(self, client: httpx.AsyncClient, request: Request, token: str) -> httpx.Response:
        headers = {"X-SLURM-USER-TOKEN": token}
        try:
            return await client.request(
                request.method,
                request.path,
                params=list(request.query) or None,
                content=None if request.body is None else orjson.dumps(request.body),
                headers=headers,
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unreachable(f"no connection to slurmrestd at {self._where.text}: {error}") from error
        except httpx.TimeoutException as error:
            waited = f"no reply within {self._timeout_s:g} s"
            raise OutcomeUnknown(f"{request.text}: {waited}") from error

    async def _carry_again(
        self, client: httpx.AsyncClient, request: Request, token: str
    ) -> httpx.Response:
        try:
            return await self._carry(client, request, token)
        except (Unreachable, *_LOST) as error:
            # Unreachable too: the first try may have been carried out.
            lost = f"{request.text}: the connection was lost: {error}"
            raise OutcomeUnknown(lost) from error

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        try:
            async with asyncio.timeout(self._timeout_s):
                client = await self._idle.get()
        except TimeoutError as error:
            raise RetryLater(
                f"all connections to slurmrestd were busy for {self._timeout_s:g} s"
            ) from error
        try:
            client = client if client and not client.is_closed else self._open()
            yield client
        finally:
            self._idle.put_nowait(client)

    def _open(self) -> httpx.AsyncClient:
        client = self._where.client(self._timeout_s)
        self._clients.append(client)
        return client

    def _token_refused(self, error: SlurmError) -> NeedsOperator:
        return NeedsOperator(
            f"Slurm does not take the token: {self._tokens.describe()} [{error.words}]",
            number=error.number,
            http_status=error.http_status,
        )


_LOST = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.CloseError)


def _about_the_token(error: SlurmError) -> bool:
    return error.http_status in {401, 511} or error.number in _AUTH_NUMBERS


@dataclass(frozen=True, slots=True)
class _Where:
    """The server: an origin, or a UNIX socket."""

    text: str
    base: str
    socket: str | None

    @classmethod
    def parse(cls, url: str) -> _Where:
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path and not parts.netloc:
            return cls(url, "http://slurmrestd", parts.path)
        if parts.scheme in {"http", "https"} and parts.hostname:
            return cls(url, url.rstrip("/"), None)
        raise ValueError(f"slurmrestd's URL is {url!r}; http://host:port, https:// or unix:///path")

    def client(self, timeout_s: float) -> httpx.AsyncClient:
        # Certificates are loaded for https only: that costs 20 ms and more a client.
        secure = self.base.startswith("https:")
        context = ssl.create_default_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        return httpx.AsyncClient(
            base_url=self.base,
            transport=httpx.AsyncHTTPTransport(verify=context, uds=self.socket, limits=limits),
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
            headers={"Content-Type": "application/json"},
            trust_env=False,
        )
