"""FastAPI applications for the extender's callers: kube-scheduler, kube-apiserver and Slurm's scripts.

A route reads the body itself, and pydantic validates the bytes. FastAPI would parse the whole body
before the limit on values applies. A hostile body of 4 MiB for /preempt would then take 270 ms, instead
of 14 ms. The body of an error has the form that kube-scheduler expects: {"Error": "..."}."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, Final, TypeVar

import orjson
import structlog
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import AfterValidator, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from service.cooperative import OneByOne, Together
from service.rate_limited_log import RateLimitedLog

log = structlog.get_logger()

CLIENT_GONE: Final = 499
"""Status of a request if the client has disconnected, so that no reply is sent. nginx uses the same
number."""

# Limits of an error message, in a reply and in the log.
_MOST_FIELDS = 5
_LONGEST_FIELD = 200

# Limit on the bytes of waiting large bodies: half of a listener's limit on all bodies. Each body
# counts as at least 128 KiB, so at most 256 bodies wait.
_MOST_WAITING = 32 << 20
_LEAST_WAITING = 128 << 10

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def application(
    *routers: APIRouter, prefix: str = "", is_large: Callable[[bytes], bool] = lambda _: False
) -> FastAPI:
    """Returns the application of routers with `VerbRoute`. Requests with a large body are answered
    one by one. Other requests are answered at once, unless very many arrive together."""
    made = FastAPI(
        openapi_url=None, redirect_slashes=False, exception_handlers={HTTPException: _not_served}
    )
    made.state.turns = _Turns(is_large)
    for router in routers:
        made.include_router(router, prefix=prefix)
    return made


class VerbRoute(APIRoute):
    """A route that answers each request in its turn (`_Turns`). Malformed requests and unexpected errors
    also get an answer."""

    def get_route_handler(self) -> Handler:
        handler, malformed = super().get_route_handler(), RateLimitedLog("malformed request")

        async def answer(request: Request) -> Response:
            return await _answer(handler, malformed, request)

        return answer


async def _answer(handler: Handler, malformed: RateLimitedLog, request: Request) -> Response:
    turns: _Turns = request.app.state.turns
    path = request.scope["path"]
    try:
        return await turns.answer(handler, request)
    except (ValidationError, RequestValidationError) as error:
        wrong = "malformed request: " + fields_in_words(errors_of(error))
        malformed.says(path=path, error=wrong)
        return _error(HTTPStatus.BAD_REQUEST, wrong)
    except ClientDisconnect:
        return Response(status_code=CLIENT_GONE)
    except Exception:
        log.exception("a request failed in an unforeseen way", path=path)
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error: see the extender's log")


async def _not_served(request: Request, error: Exception) -> Response:
    """Answers a request without a route."""
    assert isinstance(error, HTTPException)
    if error.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
        return _error(error.status_code, f"{request.scope['path']} does not exist")
    headers = error.headers or {}
    return _error(error.status_code, f"only {headers.get('Allow')} is allowed", headers)


class _Turns:
    """Decides the order in which requests are answered. Large requests are answered one by one
    (`OneByOne`)."""

    def __init__(self, is_large: Callable[[bytes], bool]) -> None:
        self._is_large = is_large
        self._small = Together()
        self._large = OneByOne()
        self.waiting_bytes = 0
        """Bytes in the bodies of all large requests that have no answer yet."""

    async def answer(self, handler: Handler, request: Request) -> Response:
        """Answers a request. Raises ClientDisconnect if the client disconnects before the end of
        the body."""
        body = await request.body()
        if self._is_large(body):
            return await self._answer_large(partial(handler, request), len(body), request)
        await self._small.may_begin()
        return await handler(request)

    async def _answer_large(
        self, answer: Callable[[], Awaitable[Response]], length: int, request: Request
    ) -> Response:
        """Answers a large request in its turn. Skips the request if the client disconnects first,
        as kube-apiserver does after `timeoutSeconds`."""
        takes = max(length, _LEAST_WAITING)
        if self.waiting_bytes + takes > _MOST_WAITING:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests are waiting")
        self.waiting_bytes += takes
        answered = asyncio.ensure_future(self._large.does(answer))
        gone = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait((answered, gone), return_when=asyncio.FIRST_COMPLETED)
            return answered.result() if answered.done() else Response(status_code=CLIENT_GONE)
        finally:
            self.waiting_bytes -= takes
            answered.cancel()
            gone.cancel()


def reply(body: Any, status: int = 200) -> Response:
    """Returns a response with JSON, written by orjson."""
    return Response(orjson.dumps(body), status, media_type="application/json")


def _error(status: int, words: str, headers: Mapping[str, str] | None = None) -> Response:
    answer = reply({"Error": words}, status)
    answer.headers.update(headers or {})
    return answer


def errors_of(error: ValidationError | RequestValidationError) -> Sequence[Any]:
    """Returns the errors of a request. `fields_in_words` uses only the place and the message of each
    error."""
    if isinstance(error, RequestValidationError):
        return error.errors()
    return error.errors(include_url=False, include_context=False, include_input=False)


def fields_in_words(errors: Iterable[Any]) -> str:
    """Returns a short message with the wrong fields: the first errors, each cut to a length."""
    fields = (f"{_place(e['loc'])}: {e['msg']}"[:_LONGEST_FIELD] for e in islice(errors, _MOST_FIELDS))
    return "; ".join(fields)


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:_LONGEST_FIELD] for part in location) or "body"


Item = TypeVar("Item")
Items = Annotated[list[Item], Field(fail_fast=True)]
"""A list whose validation ends at the first wrong item. pydantic needs a kilobyte and some 10 us for
each wrong item, and 4 MiB of JSON may have two million wrong items."""


def _all_texts(given: dict[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if not isinstance(value, str):
            raise ValueError(f"{name[:_LONGEST_FIELD]} is not a text")  # noqa: TRY004 -- pydantic's error
    return given


Texts = Annotated[dict[str, Any], AfterValidator(_all_texts)]
"""A map from texts to texts. The validation ends at the first wrong item, for the same reason as in
`Items`."""
