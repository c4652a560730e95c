"""The loop of periodic work with retries."""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable

Pause = float | Callable[[], Awaitable[object]]
"""Seconds, or a coroutine function that returns at the end of the pause."""


async def periodically(
    act: Callable[[], object],
    pause: Pause,
    *,
    outlives: type[Exception] | tuple[type[Exception], ...] = (),
    retry: Pause | None = None,
    report: Callable[[Exception | None], object] = lambda _: None,
    pauses_first: bool = False,
) -> None:
    """Calls `act` without end. `act` may be a coroutine function.

    * The pause between two calls is `pause`, or `retry` after an error in `outlives`.
    * `report` gets each error in `outlives`, and None after each success.
    * Every other error is raised.
    """
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
