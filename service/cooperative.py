"""Long work in the event loop, which gives way to all other work between its parts.

/filter is answered within milliseconds at any time: no work may hold the loop for long.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from time import perf_counter
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_TURN_S = 0.002
_TOGETHER_S = 0.02


class Turn:
    """The 2 ms for which long work may hold the event loop; then all other work gets its turn."""

    def __init__(self) -> None:
        self._ends = perf_counter() + _TURN_S

    @property
    def is_over(self) -> bool:
        return perf_counter() >= self._ends

    async def next(self) -> None:
        """Returns when this work may go on."""
        await asyncio.sleep(0)
        self._ends = perf_counter() + _TURN_S


async def yielding(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yields the items. All other work gets a turn whenever the work on the items has taken 2 ms. Other
    work may change the collection meanwhile: a caller that must not see this passes a copy."""
    turn = Turn()
    for item in items:
        yield item
        if turn.is_over:
            await turn.next()


class Together:
    """Small pieces of work that come all at once, and do not know of each other. In each turn of the
    event loop as many of them run as take 20 ms."""

    def __init__(self) -> None:
        self._ends: float | None = None
        """When this turn's time is over; None where no work has begun in it."""

    async def may_begin(self) -> None:
        """Returns when there is time for one more piece: mostly at once, without giving way."""
        while self._ends is not None and perf_counter() >= self._ends:  # noqa: ASYNC110 -- each turn begins anew
            await asyncio.sleep(0)
        if self._ends is None:
            self._ends = perf_counter() + _TOGETHER_S
            asyncio.get_running_loop().call_soon(self._begin_anew)

    def _begin_anew(self) -> None:
        self._ends = None


class OneByOne:
    """Pieces of work that cannot be divided: they run one at a time, in the order in which they came.
    After each piece the event loop is left to all other work for as long as the piece took."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # which is given in the order in which it is waited for
        self._rests_until = 0.0

    async def does(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Returns the result of the work, without a pause after it where no other piece waits."""
        async with self._turn:
            await asyncio.sleep(self._rests_until - perf_counter())
            began = perf_counter()
            try:
                return await work()
            finally:
                now = perf_counter()
                self._rests_until = now + (now - began)
