"""Tests of reading requests and writing replies, for all verbs."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from time import process_time
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request, Response
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from structlog.testing import capture_logs

from extender.routing import CLIENT_GONE, VerbRoute, application, reply
from extender.telemetry.catalogue import VERBS
from extender.telemetry.http import HttpTelemetry


class Asked(BaseModel):
    number: int


class Answered:
    """A verb that doubles a number, with the metrics of the requests."""

    def __init__(self) -> None:
        routes = APIRouter(route_class=VerbRoute)

        @routes.post("/double")
        async def double(request: Request) -> Response:
            number = Asked.model_validate_json(await request.body()).number
            if number < 0:
                raise RuntimeError("a defect")
            return reply({"number": 2 * number})

        self.application = application(routes)
        self._registry = CollectorRegistry()
        HttpTelemetry(self._registry).instrument_verbs(self.application)
        self.client = client_of(self.application)

    @property
    def observed(self) -> list[tuple[str, str]]:
        """Returns the verb and the status of each measured request."""
        return [
            (sample.labels["verb"], sample.labels["status"])
            for metric in self._registry.collect()
            for sample in metric.samples
            if sample.name == f"{VERBS.name}_count"
            for _ in range(int(sample.value))
        ]

    @property
    def seconds(self) -> float:
        """Returns the duration of all measured requests in seconds."""
        return sum(
            sample.value
            for metric in self._registry.collect()
            for sample in metric.samples
            if sample.name == f"{VERBS.name}_sum"
        )


def client_of(served: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://extender")


async def test_an_answer_is_json() -> None:
    verbs = Answered()
    answer = await verbs.client.post("/double", json={"number": 21})
    assert (answer.json(), answer.headers["content-type"]) == ({"number": 42}, "application/json")
    assert verbs.observed == [("double", "200")]


async def test_measured_time_ends_at_the_begin_of_the_reply() -> None:
    verbs = Answered()
    body = {"type": "http.request", "body": b'{"number": 4}', "more_body": False}
    await _exchange(verbs.application, body, sending_takes_s=0.2)
    assert verbs.observed == [("double", "200")]
    assert verbs.seconds < 0.2


async def test_body_in_pieces_is_joined() -> None:
    sent = await _exchange(
        Answered().application,
        {"type": "http.request", "body": b'{"num', "more_body": True},
        {"type": "http.request", "body": b'ber": 4}', "more_body": False},
    )
    assert [message.get("body") for message in sent] == [None, b'{"number":8}']


async def test_caller_that_disconnects_within_a_body_gets_no_reply() -> None:
    verbs = Answered()
    sent = await _exchange(
        verbs.application,
        {"type": "http.request", "body": b'{"number": 4}', "more_body": True},
        {"type": "http.disconnect"},
    )
    assert [message.get("status") for message in sent] == [CLIENT_GONE, None]
    assert verbs.observed == []


@pytest.mark.alone
async def test_many_small_requests_do_not_block_the_event_loop() -> None:
    routes, gaps = APIRouter(route_class=VerbRoute), [0.0]

    @routes.post("/work")
    async def work() -> Response:
        until = process_time() + 0.005
        while process_time() < until:
            pass
        return reply(1)

    served = application(routes)
    message = {"type": "http.request", "body": b"", "more_body": False}
    asked = [asyncio.ensure_future(_exchange(served, message, path="/work")) for _ in range(60)]
    while not all(each.done() for each in asked):
        before = process_time()
        await asyncio.sleep(0)
        gaps.append(process_time() - before)
    assert all(each.result()[1]["body"] == b"1" for each in asked)
    assert max(gaps) < 0.06  # the work takes 0.3 s


async def test_a_wrong_field_is_named() -> None:
    verbs = Answered()
    answer = await verbs.client.post("/double", json={"number": "many"})
    assert answer.status_code == 400
    assert "number: Input should be a valid integer" in answer.json()["Error"]
    assert verbs.observed == [("double", "400")]


async def test_a_defect_is_logged_and_answered() -> None:
    with capture_logs() as logs:
        answer = await Answered().client.post("/double", json={"number": -1})
    assert (answer.status_code, answer.json()) == (
        500,
        {"Error": "internal error: see the extender's log"},
    )
    assert [(entry["path"], entry["exc_info"]) for entry in logs] == [("/double", True)]


async def test_only_known_paths_and_post_are_served() -> None:
    """Requests for random paths must not add metrics."""
    verbs = Answered()
    assert (await verbs.client.post("/nothing", json={})).status_code == 404
    wrong = await verbs.client.get("/double")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert verbs.observed == []


async def _exchange(
    served: FastAPI,
    *received: MutableMapping[str, Any],
    path: str = "/double",
    sending_takes_s: float = 0.0,
) -> list[Any]:
    coming, sent = iter(received), []

    async def receive() -> MutableMapping[str, Any]:
        return next(coming)

    async def send(message: MutableMapping[str, Any]) -> None:
        await asyncio.sleep(sending_takes_s)
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    await served(scope, receive, send)
    return sent


LARGE = 17 << 20


class Waiting:
    """A verb whose large requests wait for `go_on`."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.works = asyncio.Event()
        self.go_on = asyncio.Event()
        routes = APIRouter(route_class=VerbRoute)

        @routes.post("/double")
        async def length(request: Request) -> Response:
            body = await request.body()
            self.began.append(len(body))
            if len(body) > 9:
                self.works.set()
                await self.go_on.wait()
            return reply(len(body))

        self.application = application(routes, is_large=lambda body: len(body) > 9)
        self.client = client_of(self.application)

    async def asks(self, length: int) -> tuple[int, str]:
        async with asyncio.timeout(5):
            answer = await self.client.post("/double", content=b"x" * length)
            return answer.status_code, answer.text


async def test_large_requests_run_in_turn_and_small_requests_do_not_wait() -> None:
    verb = Waiting()
    asked = [asyncio.ensure_future(verb.asks(length)) for length in (10, 11)]
    async with asyncio.timeout(5):
        await verb.works.wait()
    assert await verb.asks(9) == (200, "9")
    assert verb.began == [10, 9]
    verb.go_on.set()
    assert await asyncio.gather(*asked) == [(200, "10"), (200, "11")]
    assert verb.began == [10, 9, 11]


async def test_large_request_of_a_disconnected_caller_is_skipped() -> None:
    verb = Waiting()
    first = asyncio.ensure_future(verb.asks(10))
    async with asyncio.timeout(5):
        await verb.works.wait()
        sent = await _exchange(
            verb.application,
            {"type": "http.request", "body": b"x" * 11, "more_body": False},
            {"type": "http.disconnect"},
        )
    assert [message.get("status") for message in sent] == [CLIENT_GONE, None]
    verb.go_on.set()
    assert await first == (200, "10")
    assert await verb.asks(12) == (200, "12")
    assert verb.began == [10, 12]


@pytest.mark.parametrize(("length", "most"), [(LARGE, 1), (10, 256)])
async def test_number_of_waiting_large_requests_is_limited(length: int, most: int) -> None:
    """Large requests that wait take memory, and small requests take connections. The listener limits
    both."""
    verb = Waiting()
    asked = [asyncio.ensure_future(verb.asks(length)) for _ in range(most)]
    async with asyncio.timeout(5):
        await verb.works.wait()
    assert await verb.asks(length) == (503, '{"Error":"too many large requests are waiting"}')
    assert await verb.asks(9) == (200, "9")
    verb.go_on.set()
    assert set(await asyncio.gather(*asked)) == {(200, f"{length}")}
    assert await verb.asks(length) == (200, f"{length}")
