"""Tests of periodic work: the work goes on after expected errors, and reports the errors."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from service.periodic import periodically


class Loop:
    """Work with given outcomes: an error, or None. Records all events. After the given outcomes, a
    SystemError ends the work."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self._outcomes = iter((*outcomes, SystemError("the end")))
        self.happened: list[str] = []

    async def act(self) -> None:
        self.happened.append("act")
        outcome = next(self._outcomes)
        if outcome is not None:
            raise outcome

    def report(self, error: Exception | None) -> None:
        self.happened.append(f"report {error}")

    def noting(self, what: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def note() -> None:
            self.happened.append(what)

        return note

    async def run(self, **given: Any) -> list[str]:
        with pytest.raises(SystemError, match="the end"):
            await periodically(self.act, self.noting("pause"), outlives=(OSError, ValueError), **given)
        return self.happened


async def test_work_repeats_after_each_pause_and_reports_its_errors() -> None:
    loop = Loop(None, OSError("down"), ValueError("odd"), None)
    assert await loop.run(report=loop.report) == [
        *("act", "report None", "pause"),
        *("act", "report down", "pause"),
        *("act", "report odd", "pause"),
        *("act", "report None", "pause"),
        "act",
    ]


async def test_retry_after_an_error_may_be_sooner() -> None:
    loop = Loop(OSError("down"), None)
    assert await loop.run(retry=loop.noting("retry")) == ["act", "retry", "act", "pause", "act"]


async def test_unexpected_error_ends_the_work() -> None:
    loop = Loop(KeyError("a mistake"))
    with pytest.raises(KeyError):
        await periodically(loop.act, loop.noting("pause"), outlives=OSError)
    assert loop.happened == ["act"]


async def test_work_may_begin_with_a_pause_and_be_a_plain_function() -> None:
    loop = Loop(None)

    def act() -> None:
        loop.happened.append("act")
        if loop.happened.count("act") > 1:
            raise SystemError("the end")

    with pytest.raises(SystemError, match="the end"):
        await periodically(act, loop.noting("pause"), pauses_first=True)
    assert loop.happened == ["pause", "act", "pause", "act"]


async def test_pause_may_be_a_number_of_seconds() -> None:
    loop, clock = Loop(None, OSError("down")), asyncio.get_running_loop().time
    began = clock()
    with pytest.raises(SystemError, match="the end"):
        await periodically(loop.act, 0.01, outlives=OSError, retry=0.02)
    assert clock() - began >= 0.03
