"""The loop of periodic work with retries."""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable

Pause = float | Callable[[], Awaitable[object]]
"""Seconds, or a function that returns when the pause is over."""


async def periodically(
    act: Callable[[], object],
    pause: Pause,
    *,
    outlives: type[Exception] | tuple[type[Exception], ...] = (),
    retry: Pause | None = None,
    report: Callable[[Exception | None], object] = lambda _: None,
    pauses_first: bool = False,
) -> None:
    """Calls `act`, which may be a coroutine function, for ever, with `pause` between two calls, or
    `retry` after one of the errors of `outlives`. `report` gets each of these errors, and None after
    each success. Raises every other error."""
    if pauses_first:
        await _wait(pause)
    while True:
        try:
            done = act()
            if isawaitable(done):
                await done
        except outlives as error:
            report(error)
            await _wait(pause if retry is None else retry)
        else:
            report(None)
            await _wait(pause)


async def _wait(pause: Pause) -> None:
    await (pause() if callable(pause) else asyncio.sleep(pause))
