"""Long loops in the event loop: everything else gets its turns between their parts.

/filter is answered within milliseconds, whatever else goes on: nothing may hold the loop for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

Item = TypeVar("Item")


async def by_turns(items: Iterable[Item], at_a_time: int) -> AsyncIterator[Item]:
    """Yields the items; all others get a turn after so many of them. What the items are may change
    meanwhile: whoever goes by what it was gives a copy."""
    for number, item in enumerate(items, 1):
        yield item
        if number % at_a_time == 0:
            await asyncio.sleep(0)
