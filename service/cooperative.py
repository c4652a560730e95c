"""Long work in the event loop: everything else gets its turns between its parts.

/filter is answered within milliseconds, whatever else goes on: nothing may hold the loop for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from time import perf_counter
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_TURN_S = 0.002
_TOGETHER_S = 0.02


class Turn:
    """The 2 ms for which long work may hold the event loop; then all others get their turn."""

    def __init__(self) -> None:
        self._ends = perf_counter() + _TURN_S

    @property
    def is_over(self) -> bool:
        return perf_counter() >= self._ends

    async def next(self) -> None:
        """Returns when it is this work's turn again."""
        await asyncio.sleep(0)
        self._ends = perf_counter() + _TURN_S


async def yielding(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yields the items; all others get a turn whenever what is done with them has taken 2 ms. What the
    items are may change meanwhile: whoever goes by what it was gives a copy."""
    turn = Turn()
    for item in items:
        yield item
        if turn.is_over:
            await turn.next()


class Together:
    """Small pieces of work that all come at once, and do not know of each other: so many of them in a
    turn of the event loop as take 20 ms, and the others in the next ones."""

    def __init__(self) -> None:
        self._ends: float | None = None
        """When this turn has taken so long; None where nothing was begun in it yet."""

    async def may_begin(self) -> None:
        """Returns when there is time for one more: mostly at once, without giving way."""
        while self._ends is not None and perf_counter() >= self._ends:  # noqa: ASYNC110 -- each turn begins anew
            await asyncio.sleep(0)
        if self._ends is None:
            self._ends = perf_counter() + _TOGETHER_S
            asyncio.get_running_loop().call_soon(self._begin_anew)

    def _begin_anew(self) -> None:
        self._ends = None


class OneByOne:
    """Work that cannot be parted: one piece at a time, in the order in which they came. After each the
    event loop is everything else's for as long as the piece took."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # which is given in the order in which it is waited for
        self._rests_until = 0.0

    async def does(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Returns what comes of it, without a rest after it where nothing follows."""
        async with self._turn:
            await asyncio.sleep(self._rests_until - perf_counter())
            began = perf_counter()
            try:
                return await work()
            finally:
                now = perf_counter()
                self._rests_until = now + (now - began)
