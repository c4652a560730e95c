"""Long loops in the event loop: everything else gets its turns between their parts.

/filter is answered within milliseconds, whatever else goes on: nothing may hold the loop for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import TypeVar

Item = TypeVar("Item")


_TURN_S = 0.002


async def by_turns(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yields the items; all others get a turn whenever what is done with them has taken 2 ms. What the
    items are may change meanwhile: whoever goes by what it was gives a copy."""
    ends = perf_counter() + _TURN_S
    for item in items:
        yield item
        if perf_counter() >= ends:
            await asyncio.sleep(0)
            ends = perf_counter() + _TURN_S
