"""One loop for whatever is done every now and then, and tried again where it fails."""

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
    """Does something for ever; `act` may be a coroutine function. The next time comes when `pause` is
    over, or `retry` where the last time ended with one of the errors that this outlives. `report` is
    told of each of those errors, and None after each success. Raises every other error."""
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
