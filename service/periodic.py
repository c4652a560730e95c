"""One loop for whatever is done every now and then, and tried again where it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


async def periodically(
    act: Callable[[], Awaitable[object]],
    pause: Callable[[], Awaitable[object]],
    *,
    outlives: type[Exception] | tuple[type[Exception], ...],
    retry: Callable[[], Awaitable[object]] | None = None,
    report: Callable[[Exception | None], object] = lambda _: None,
) -> None:
    """Does something for ever. The next time comes when `pause` is over, or `retry` where the last time
    ended with one of the errors that this outlives. `report` is told of each of those errors, and None
    after each success. Raises every other error."""
    while True:
        try:
            await act()
        except outlives as error:
            report(error)
            await (retry or pause)()
        else:
            report(None)
            await pause()
