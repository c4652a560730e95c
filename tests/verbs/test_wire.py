"""How requests are read and answered, whatever the verb."""

from __future__ import annotations

from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any

import httpx
from pydantic import BaseModel
from structlog.testing import capture_logs

from extender.wire import Verbs


class Asked(BaseModel):
    number: int


class Answered:
    """A verb that doubles a number, and what was observed of its requests."""

    def __init__(self) -> None:
        self.observed: list[tuple[str, HTTPStatus]] = []
        self.application = Verbs(
            {"/double": self._double}, lambda path, status, _: self.observed.append((path, status))
        )
        transport = httpx.ASGITransport(self.application)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://extender")

    async def _double(self, body: bytes) -> dict[str, int]:
        number = Asked.model_validate_json(body).number
        if number < 0:
            raise RuntimeError("a defect")
        return {"number": 2 * number}


async def test_an_answer_is_json() -> None:
    verbs = Answered()
    answer = await verbs.client.post("/double", json={"number": 21})
    assert (answer.json(), answer.headers["content-type"]) == ({"number": 42}, "application/json")
    assert verbs.observed == [("/double", HTTPStatus.OK)]


async def test_a_body_that_comes_in_pieces_is_put_together() -> None:
    sent = await _exchange(
        Answered().application,
        {"type": "http.request", "body": b'{"num', "more_body": True},
        {"type": "http.request", "body": b'ber": 4}', "more_body": False},
    )
    assert [message.get("body") for message in sent] == [None, b'{"number":8}']


async def test_whoever_goes_away_before_the_end_of_a_body_is_not_answered() -> None:
    verbs = Answered()
    sent = await _exchange(
        verbs.application,
        {"type": "http.request", "body": b'{"number": 4}', "more_body": True},
        {"type": "http.disconnect"},
    )
    assert (sent, verbs.observed) == ([], [])


async def test_a_wrong_field_is_named() -> None:
    verbs = Answered()
    answer = await verbs.client.post("/double", json={"number": "many"})
    assert answer.status_code == 400
    assert "number: Input should be a valid integer" in answer.json()["Error"]
    assert verbs.observed == [("/double", HTTPStatus.BAD_REQUEST)]


async def test_a_defect_is_logged_and_answered() -> None:
    with capture_logs() as logs:
        answer = await Answered().client.post("/double", json={"number": -1})
    assert (answer.status_code, answer.json()) == (
        500,
        {"Error": "internal error: see the extender's log"},
    )
    assert [(entry["path"], entry["exc_info"]) for entry in logs] == [("/double", True)]


async def test_only_what_is_there_is_served_and_only_to_post() -> None:
    """What is asked at random must not make a metric each."""
    verbs = Answered()
    assert (await verbs.client.post("/nothing", json={})).status_code == 404
    wrong = await verbs.client.get("/double")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert verbs.observed == []


async def _exchange(application: Verbs, *received: MutableMapping[str, Any]) -> list[Any]:
    coming, sent = iter(received), []

    async def receive() -> MutableMapping[str, Any]:
        return next(coming)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await application({"type": "http", "method": "POST", "path": "/double"}, receive, send)
    return sent
