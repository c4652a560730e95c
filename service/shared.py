"""A single call for all callers with the same need at about the same time."""

import asyncio
from collections.abc import Awaitable, Callable


class Shared:
    """A call for many callers. Callers that come during a call share the next call, after the current
    call. All callers get the errors of the call. If a single caller is cancelled, the call continues for
    the other callers."""

    def __init__(self, call: Callable[[], Awaitable[object]]) -> None:
        self._call = call
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        """Starts or joins the next call. Returns at the end of a call that began after this method was
        called."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._under_way))
        await asyncio.shield(self._next)

    async def _after(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._under_way, self._next = self._next, None
        await self._call()
