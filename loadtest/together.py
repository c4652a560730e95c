"""Many calls at a time, but not all of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


async def for_each(
    items: Iterable[Item], act: Callable[[Item], Awaitable[object]], at_a_time: int
) -> None:
    """Acts on the items, which are taken in their order, so many at a time. Raises what `act` raises, in
    a group."""
    todo = iter(items)

    async def work() -> None:
        for item in todo:
            await act(item)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_a_time):
            tasks.create_task(work())
