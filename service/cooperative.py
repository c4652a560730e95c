"""Divides long work in the event loop into turns, so that other work waits only milliseconds. For
example, /filter must answer within milliseconds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from time import perf_counter
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_TURN_S = 0.002
_TOGETHER_S = 0.02


class Turn:
    """A period of 2 ms for which long work may hold the event loop. Afterwards, other work gets a
    turn."""

    def __init__(self) -> None:
        self._ends = perf_counter() + _TURN_S

    @property
    def is_over(self) -> bool:
        return perf_counter() >= self._ends

    async def next(self) -> None:
        """Lets other work run."""
        await asyncio.sleep(0)
        self._ends = perf_counter() + _TURN_S


async def yielding(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yields the items, and lets other work run after each 2 ms. Other work may change the collection.
    To see no changes, pass a copy."""
    turn = Turn()
    for item in items:
        yield item
        if turn.is_over:
            await turn.next()


class Together:
    """Lets small independent pieces of work take at most 20 ms in each turn of the event loop."""

    def __init__(self) -> None:
        self._ends: float | None = None
        """End of the time in this turn; None before the first piece."""

    async def may_begin(self) -> None:
        """Returns as soon as there is time for another piece. Usually returns at once, in the same
        turn."""
        while self._ends is not None and perf_counter() >= self._ends:  # noqa: ASYNC110 -- until the next turn
            await asyncio.sleep(0)
        if self._ends is None:
            self._ends = perf_counter() + _TOGETHER_S
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._ends = None


class OneByOne:
    """Runs indivisible pieces of work, one at a time, in the order of their arrival. After each piece,
    other work has the event loop for as long as the piece took."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # in the order of the callers
        self._rests_until = 0.0

    async def does(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Does a piece of work, and returns the result at once. Only the next piece waits."""
        async with self._turn:
            await asyncio.sleep(self._rests_until - perf_counter())
            began = perf_counter()
            try:
                return await work()
            finally:
                now = perf_counter()
                self._rests_until = now + (now - began)
