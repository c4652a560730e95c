"""Counts how often other tasks get to run while an awaitable runs."""

import asyncio
from collections.abc import Awaitable


async def turns_of_others(during: Awaitable[object]) -> int:
    """Returns the number of turns that another task gets until the awaitable is done."""
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
