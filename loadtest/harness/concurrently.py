"""Runs many calls concurrently, up to a limit. Also polls for conditions that cause no events."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from loadtest.harness.command import Broken

AT_A_TIME: Final = 16

Item = TypeVar("Item")


async def for_each(items: Iterable[Item], act: Callable[[Item], Awaitable[object]]) -> None:
    """Calls `act` on all items, at most AT_A_TIME at once. The calls begin in the order of the items.
    Raises errors of `act` in an ExceptionGroup."""
    todo = iter(items)

    async def work() -> None:
        for item in todo:
            await act(item)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_A_TIME):
            tasks.create_task(work())


@asynccontextmanager
async def beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs `works` until the end of the block. If a work fails, the block ends with the error in an
    ExceptionGroup."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in works]
        try:
            yield
        finally:
            for each in running:
                each.cancel()


async def at_pace(per_s: float, act: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Starts `act` on the numbers 0, 1, 2 ..., `per_s` times each second, without end. Raises errors of
    `act` in an ExceptionGroup."""
    async with asyncio.TaskGroup() as tasks:
        for number in itertools.count():
            tasks.create_task(act(number))
            await asyncio.sleep(1 / per_s)


async def until(
    see: Callable[[], Awaitable[Item | None]], what: str, within_s: float, every_s: float = 0.1
) -> Item:
    """Calls `see` repeatedly, and returns its first true result. Raises Broken after the timeout."""
    try:
        async with asyncio.timeout(within_s):
            while not (seen := await see()):  # noqa: ASYNC110
                await asyncio.sleep(every_s)
    except TimeoutError:
        raise Broken(f"{what}: not within {within_s:g} s") from None
    return seen
