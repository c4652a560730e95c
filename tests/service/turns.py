"""Counts the turns of other tasks while an awaitable runs."""

import asyncio
from collections.abc import Awaitable


async def turns_of_others(during: Awaitable[object]) -> int:
    """Counts the turns that another task gets until an awaitable is done."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.ensure_future(others())
    await during
    other.cancel()
    return turns
