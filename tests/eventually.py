"""Waits in tests: a test reads a value again and again until a condition holds, and fails after a time
limit."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from inspect import isawaitable
from operator import not_
from typing import Any, TypeVar

Result = TypeVar("Result")


def eventually(
    see: Callable[[], Result],
    what: str = "",
    within_s: float = 40.0,
    *,
    holds: Callable[[Result], object] = bool,
) -> Result:
    """Returns the first value of `see` for which `holds` is true. Fails after `within_s` seconds."""
    began = looks = time.monotonic()
    while not holds(seen := see()):
        now = time.monotonic()
        assert now < began + within_s, _late(what, within_s, seen)
        time.sleep(_pause_s(0.03, now - began, now - looks))
        looks = time.monotonic()
    return seen


def eventually_not(see: Callable[[], object], what: str, within_s: float = 40.0) -> None:
    """Returns as soon as the value of `see` is false. Fails after `within_s` seconds."""
    eventually(see, what, within_s, holds=not_)


async def until(
    see: Callable[[], Any],
    what: str = "",
    within_s: float = 5.0,
    *,
    holds: Callable[[Any], object] = bool,
) -> Any:
    """Does the same as `eventually`, but on the event loop. The value of `see` may be awaitable."""
    seen = None
    began = looks = time.monotonic()
    try:
        async with asyncio.timeout(within_s):
            while not holds(seen := await value if isawaitable(value := see()) else value):
                now = time.monotonic()
                await asyncio.sleep(_pause_s(0.01, now - began, now - looks))
                looks = time.monotonic()
    except TimeoutError as late:
        raise AssertionError(_late(what, within_s, seen)) from late
    return seen


def _pause_s(shortest_s: float, waited_s: float, looked_s: float) -> float:
    """Returns the pause before the next read. Each read costs CPU of the systems under test, so the
    pause grows with the whole wait. The pause also grows with the duration of the last read, which is
    longest for kubectl."""
    return max(shortest_s, min(0.5, max(waited_s / 20, 3 * looked_s)))


def _late(what: str, within_s: float, seen: object) -> str:
    """Returns the message of a wait that took too long. The message begins with `what`, or otherwise
    with the source line of the wait."""
    awaited = what or traceback.extract_stack(limit=3)[0].line
    return f"{awaited}: not within {within_s:g} s, but {seen!r}"
