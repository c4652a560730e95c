"""Waits in tests: a test looks until a condition holds, and fails after a limit."""

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
    began = time.monotonic()
    while not holds(seen := see()):
        took = time.monotonic() - began
        assert took < within_s, _late(what, within_s, seen)
        time.sleep(min(0.1, max(0.03, took / 10)))  # each look costs CPU of the systems under test
    return seen


def eventually_not(see: Callable[[], object], what: str, within_s: float = 40.0) -> None:
    """Returns when the value of `see` is false. Fails after `within_s` seconds."""
    eventually(see, what, within_s, holds=not_)


async def until(
    see: Callable[[], Any],
    what: str = "",
    within_s: float = 5.0,
    *,
    holds: Callable[[Any], object] = bool,
) -> Any:
    """Does the same as `eventually` on the event loop. The value of `see` may be awaitable."""
    seen = None
    try:
        async with asyncio.timeout(within_s):
            while not holds(seen := await value if isawaitable(value := see()) else value):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError as late:
        raise AssertionError(_late(what, within_s, seen)) from late
    return seen


def _late(what: str, within_s: float, seen: object) -> str:
    """Names what the test awaited: `what`, or else the line of the test that waits."""
    awaited = what or traceback.extract_stack(limit=3)[0].line
    return f"{awaited}: not within {within_s:g} s, but {seen!r}"
