"""Exchanges HTTP messages with slurmrestd: limits the connections, adds the token, and sorts the errors.

The client may send every request twice, because Slurm rejects a second creation under the same job id.
"""

import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import httpx
import orjson

from service.http.client import Client
from service.http.pool import BYTES_SENT, LOST, Endpoint, PooledTransport
from slurm_client.errors import (
    BadToken,
    JobIdTaken,
    NeedsOperator,
    OutcomeUnknown,
    RetryLater,
    SlurmError,
    Unreachable,
)
from slurm_client.rest import documents, error_mapping
from slurm_client.tokens import TokenSource
from wellknown.quoting import quoted

_CONNECT_S: Final = 5.0
_AUTH_NUMBERS: Final = {1007, 6000, 6001, 6004, 9008}
_NO_NAMES: Final = frozenset({"state", "allocate", "submit"})
"""Second parts of paths that are not the name of a job or node, as in "job/submit"."""

Document = dict[str, Any]
"""The JSON of a reply without an error."""


class Request(NamedTuple):
    """A request to slurmrestd. `path` begins at the server's root, `query` is already quoted, and `body`
    is sent as JSON. The class is a tuple, because a frozen dataclass takes twice the CPU time."""

    method: str
    path: str
    query: str = ""
    body: dict[str, Any] | None = None
    each: documents.Each | None = None
    """The name of a list in the reply, and the function that reads each entry of this list."""
    user_id: int | None = None
    """The user for whom the request is made. None means the token's user."""

    @property
    def text(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def call(self) -> str:
        """The name of the call, like "GET job" or "POST job/submit". The name is the same for every job
        and node. "GET jobs/state?job_id" is a call about some jobs, "GET jobs/state" a call about all
        jobs."""
        _, first, *rest = self.path.split("/")
        name, *more = rest[1:] if first == "slurm" else [first]
        if more and more[0] in _NO_NAMES:
            name = f"{name}/{more[0]}"
        asked = self.query.partition("=")[0]
        return f"{self.method} {name}?{asked}" if asked else f"{self.method} {name}"

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else orjson.dumps(self.body)


CallObserver = Callable[[str, int, int], object]
"""Called for each exchange with the name of the call, the bytes of the request, and the bytes of the
reply's body (0 without a reply)."""


class Connections:
    """A pool of at most `concurrency` connections to slurmrestd."""

    def __init__(
        self,
        url: str,
        token_source: TokenSource,
        *,
        timeout_s: float,
        concurrency: int,
        heard: CallObserver = lambda *_: None,
    ) -> None:
        self._url = url
        self._observe = heard
        self._tokens = token_source
        endpoint = _endpoint(url)
        # 26.05 sends each error twice. The connection is not used again, because the second copy would
        # be taken for the reply to the next request.
        self._pool = PooledTransport(endpoint, concurrency, keeps=lambda status: status < 400)
        self._client = Client(endpoint.url, self._pool, timeout_s=timeout_s, connect_s=_CONNECT_S)

    async def send(self, request: Request) -> Document:
        """Returns the reply, or raises an error of the module `errors`. If Slurm rejects the token,
        looks for a new token, and sends the request once more with the new token."""
        token = self._tokens.token()
        try:
            return await self._exchange(request, token)
        except NeedsOperator as error:
            if not _about_the_token(error):
                raise
            if not self._tokens.refresh(token):
                raise self._token_rejected(error) from error
        try:
            return await self._exchange(request, self._tokens.token())
        except NeedsOperator as error:
            raise self._token_rejected(error) from error

    async def aclose(self) -> None:
        """Closes the idle connections. Later calls open new connections."""
        await self._pool.aclose()

    async def _exchange(self, request: Request, token: str) -> Document:
        try:
            return await self._carry(request, token)
        except LOST:
            # The server may have closed an idle connection, so the request is repeated at once.
            return await self._exchange_again(request, token)

    async def _exchange_again(self, request: Request, token: str) -> Document:
        """Sends a request once more after a lost connection. The second try of a POST raises JobIdTaken
        and authentication errors unchanged. Any other error becomes OutcomeUnknown, because the first
        try may have succeeded. After JobIdTaken, the caller reads the job."""
        try:
            return await self._carry(request, token)
        except (Unreachable, RetryLater, *LOST) as error:
            lost = f"{request.text}: the connection was lost: {error}"
            raise OutcomeUnknown(lost) from error
        except SlurmError as error:
            certain = request.method != "POST" or isinstance(error, JobIdTaken)
            if certain or _about_the_token(error):
                raise
            lost = f"{request.text}: the connection was lost, then: {error.words}"
            raise OutcomeUnknown(lost) from error

    async def _carry(self, request: Request, token: str) -> Document:
        """Returns the reply, or raises the error in the reply."""
        headers = _headers(token, request.user_id, with_body=request.body is not None)
        asked = self._client.call(request.method, request.target, headers, request.content)
        received = 0
        try:
            response = await self._client.send(asked)
            received = len(response.content)
        except httpx.ReadTimeout as error:
            raise OutcomeUnknown(f"{request.text}: {error}") from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            words = f"no connection to slurmrestd at {self._url}: {error}"
            raise Unreachable(words) from error
        except httpx.PoolTimeout as error:
            raise RetryLater(f"slurmrestd at {self._url}: {error}") from error
        finally:
            self._observe(request.call, asked.extensions.get(BYTES_SENT, 0), received)
        document = await documents.read(response.content, request.each)
        if problem := error_mapping.problem(response.status_code, response.content, document):
            raise problem
        return document

    def _token_rejected(self, error: SlurmError) -> BadToken:
        return BadToken(
            f"Slurm does not take the token: {self._tokens.describe()} [{error.words}]",
            number=error.number,
            http_status=error.http_status,
        )


@lru_cache(maxsize=16)
def _headers(token: str, user_id: int | None, *, with_body: bool) -> httpx.Headers:
    headers = {"X-SLURM-USER-TOKEN": token}
    if user_id is not None:
        headers["X-SLURM-USER-NAME"] = str(user_id)
    if with_body:
        headers["Content-Type"] = "application/json"
    return httpx.Headers(headers, encoding="utf-8")


def _about_the_token(error: SlurmError) -> bool:
    return error.http_status in {401, 511} or error.number in _AUTH_NUMBERS


def _endpoint(url: str) -> Endpoint:
    try:
        return Endpoint.parse(url, ssl.create_default_context)
    except ValueError as wanted:
        raise ValueError(f"slurmrestd's URL is {quoted(url)}, which is none of {wanted}") from None
