"""A question that may never be answered: a driver that hangs keeps whoever calls it in the kernel."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

_Answer = TypeVar("_Answer")


class Unanswered(Exception):
    """There is no answer yet; the message says for how long."""


class Question(Generic[_Answer]):
    """One that is asked again and again, in a thread of its own, and by one thread at a time. The thread
    keeps the process from ending as little as it keeps the event loop from running."""

    def __init__(self, ask: Callable[[], _Answer], whom: str, patience_s: float) -> None:
        """`whom` is who does not answer, in words."""
        self._ask = ask
        self._whom = whom
        self._patience_s = patience_s
        self._asked: asyncio.Future[_Answer] | None = None
        self._until = 0.0

    async def answer(self) -> _Answer:
        """Asks, or waits on for what was asked before; returns the answer, which may be that to an
        earlier call. Raises what asking raises, and Unanswered: once the question is `patience_s` old
        without delay."""
        now = asyncio.get_running_loop().time()
        if self._asked is None:
            self._asked = _in_thread(self._ask)
            self._until = now + self._patience_s
        await asyncio.wait({self._asked}, timeout=max(self._until - now, 0.0))
        if not self._asked.done():
            raise Unanswered(f"{self._whom} has not answered for {self._patience_s:g} s")
        asked, self._asked = self._asked, None
        return asked.result()


def _in_thread(ask: Callable[[], _Answer]) -> asyncio.Future[_Answer]:
    """Threads of an executor would not do: Python waits for them when it ends."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_Answer] = loop.create_future()

    def act() -> None:
        said: _Answer | Exception
        try:
            said = ask()
        except Exception as error:  # noqa: BLE001 -- who asked has it raised
            said = error
        with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, said)

    def settle(said: _Answer | Exception) -> None:
        if isinstance(said, Exception):
            answer.set_exception(said)
            answer.exception()  # else asyncio logs it where nobody waits any more
        else:
            answer.set_result(said)

    threading.Thread(target=act, name="question", daemon=True).start()
    return answer
