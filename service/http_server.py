"""An ASGI application for the verbs, which is called several times for every Pod.

FastAPI does the same for twice the CPU (0.36 ms a request, here 0.18): a fixed path needs none of its
layers. FastAPI serves what is called more rarely and has parameters, Starlette what has none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import partial
from http import HTTPStatus
from itertools import islice
from time import perf_counter
from typing import Annotated, Any, TypeVar

import orjson
import structlog
from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import ErrorDetails
from starlette.responses import Response

from service.cooperative import OneByOne, Together
from service.rate_limited_log import RateLimitedLog

log = structlog.get_logger()

Verb = Callable[[bytes], Awaitable[Any]]
"""A function from a request's body to the content of the JSON reply. It may raise pydantic's
ValidationError."""
Observe = Callable[[str, HTTPStatus, float], object]
Answer = tuple[HTTPStatus, bytes]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# Of what is wrong with a request: in a reply, and in the log.
_MOST_FIELDS = 5
_LONGEST_FIELD = 200
_JSON = (b"content-type", b"application/json")

# Of the large bodies that wait for their turns: half of what a listener takes of all bodies. None counts
# as less than the least, so that they are 256 at most.
_MOST_WAITING = 32 << 20
_LEAST_WAITING = 128 << 10


class Verbs:
    """Answers POST requests at fixed paths. `observe` is called for each with path, status and seconds.
    Requests whose body `is_large` take turns. The others are answered at once, unless very many come at
    once in the whole process."""

    def __init__(
        self,
        verbs: Mapping[str, Verb],
        observe: Observe,
        is_large: Callable[[bytes], bool] = lambda _: False,
    ) -> None:
        self._verbs = {path: (verb, RateLimitedLog("malformed request")) for path, verb in verbs.items()}
        self._observe = observe
        self._is_large = is_large
        self._large = _Large()
        self._small = Together()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, path = perf_counter(), scope["path"]
        body = await _body(receive)
        if body is None:
            return
        found, headers = self._verbs.get(path), [_JSON]
        if found is None:
            status, content = _error(HTTPStatus.NOT_FOUND, f"there is no {path} here")
        elif scope["method"] != "POST":
            status, content = _error(HTTPStatus.METHOD_NOT_ALLOWED, "this takes POST only")
            headers.append((b"allow", b"POST"))
        else:
            answering = partial(_answer, *found, body, path)
            if self._is_large(body):
                answer = await self._large.answer(answering, len(body), receive)
            else:
                await self._small.may_begin()
                answer = await answering()
            if answer is None:
                return
            status, content = answer
            self._observe(path, status, perf_counter() - began)
        headers.append((b"content-length", b"%d" % len(content)))
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        await send({"type": "http.response.body", "body": content})


class _Large:
    """Requests that take long to answer: they are answered one by one (`OneByOne`)."""

    def __init__(self) -> None:
        self._turns = OneByOne()
        self._waiting = 0

    async def answer(
        self, answer: Callable[[], Awaitable[Answer]], length: int, receive: Receive
    ) -> Answer | None:
        """Returns the answer; None where the caller goes away before its turn, as kube-apiserver does
        after `timeoutSeconds`. No work is done for it then."""
        takes = max(length, _LEAST_WAITING)
        if self._waiting + takes > _MOST_WAITING:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests are waiting")
        self._waiting += takes
        answered = asyncio.ensure_future(self._turns.does(answer))
        gone = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((answered, gone), return_when=asyncio.FIRST_COMPLETED)
            return answered.result() if answered.done() else None
        finally:
            self._waiting -= takes
            answered.cancel()
            gone.cancel()


async def _body(receive: Receive) -> bytes | None:
    """Returns a request's body; None where the client went away."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


async def _answer(verb: Verb, malformed: RateLimitedLog, body: bytes, path: str) -> Answer:
    try:
        return HTTPStatus.OK, orjson.dumps(await verb(body))
    except ValidationError as error:
        wrong = wrong_fields(errors_of(error))
        malformed.says(path=path, error=wrong)
        return _error(HTTPStatus.BAD_REQUEST, wrong)
    except Exception:
        log.exception("a request failed in an unforeseen way", path=path)
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error: see the extender's log")


def _error(status: HTTPStatus, words: str) -> Answer:
    return status, orjson.dumps({"Error": words})


def errors_of(error: ValidationError) -> list[ErrorDetails]:
    """Returns the errors in words, without the values that were sent, which pydantic would show."""
    return error.errors(include_url=False, include_context=False, include_input=False)


def wrong_fields(errors: Iterable[Any]) -> str:
    """Returns pydantic's list of errors in words."""
    return "malformed request: " + fields_in_words(errors)


def fields_in_words(errors: Iterable[Any]) -> str:
    """Returns which fields are wrong, and how. The words are short for any request, since they go into
    the log and back: of many or long errors only the beginning."""
    told = (f"{_place(e['loc'])}: {e['msg']}"[:_LONGEST_FIELD] for e in islice(errors, _MOST_FIELDS))
    return "; ".join(told)


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:_LONGEST_FIELD] for part in location) or "body"


Item = TypeVar("Item")
Items = Annotated[list[Item], Field(fail_fast=True)]
"""A list whose validation ends at the first wrong item: pydantic spends a kilobyte and some 10 us on
each wrong one, of which 4 MiB of JSON may have two million."""


def _all_texts(given: dict[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if not isinstance(value, str):
            raise ValueError(f"{name[:_LONGEST_FIELD]} is not a text")  # noqa: TRY004 -- pydantic's word
    return given


Texts = Annotated[dict[str, Any], AfterValidator(_all_texts)]
"""A map from texts to texts, whose validation ends at the first wrong item for the same reason."""


def reply(body: Any, status: int = 200) -> Response:
    """Returns a JSON response of Starlette's, which are FastAPI's, too."""
    return Response(orjson.dumps(body), status, media_type="application/json")
