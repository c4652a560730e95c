"""One call shared by all callers that need the same at about the same time."""

import asyncio
from collections.abc import Awaitable, Callable


class Shared:
    """A call that many callers share. Callers that come while a call is under way share the next one,
    which begins when the current one has ended. All get what it raises; a caller that is cancelled does
    not end it for the others."""

    def __init__(self, call: Callable[[], Awaitable[object]]) -> None:
        self._call = call
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        """Returns when a call that began after this moment has ended."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._under_way))
        await asyncio.shield(self._next)

    async def _after(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._under_way, self._next = self._next, None
        await self._call()
