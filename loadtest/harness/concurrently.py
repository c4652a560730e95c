"""Many calls at a time, but not all of them; and waiting for what tells no news."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from loadtest.harness.command import Broken

Item = TypeVar("Item")


async def for_each(
    items: Iterable[Item], act: Callable[[Item], Awaitable[object]], at_a_time: int = 16
) -> None:
    """Acts on the items, which are taken in their order. Raises what `act` raises, in a group."""
    todo = iter(items)

    async def work() -> None:
        for item in todo:
            await act(item)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_a_time):
            tasks.create_task(work())


@asynccontextmanager
async def beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Until the end of the block; one that fails ends it, with its error in a group."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in works]
        try:
            yield
        finally:
            for each in running:
                each.cancel()


async def at_pace(per_s: float, act: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Begins to act so often, on 0, 1, 2 ..., for ever; raises what an act raises, in a group."""
    number = 0
    async with asyncio.TaskGroup() as tasks:
        while True:
            tasks.create_task(act(number))
            number += 1
            await asyncio.sleep(1 / per_s)


async def until(
    see: Callable[[], Awaitable[Item | None]], what: str, within_s: float, every_s: float = 0.1
) -> Item:
    """The first true answer of `see`, which is asked again and again. Raises Broken."""
    try:
        async with asyncio.timeout(within_s):
            while not (seen := await see()):  # noqa: ASYNC110
                await asyncio.sleep(every_s)
    except TimeoutError:
        raise Broken(f"{what}: not within {within_s:g} s") from None
    return seen
