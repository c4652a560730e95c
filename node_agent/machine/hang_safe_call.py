"""Makes calls that may never return, because a hanging driver keeps the caller in the kernel."""

import asyncio
import threading
from asyncio import Future
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

_Result = TypeVar("_Result")


class Unanswered(Exception):
    """The call has not returned yet. The message says how long the agent has waited."""


class HangSafeCall(Generic[_Result]):
    """Calls a function again and again, in a daemon thread, one call at a time. A hanging call blocks
    neither the event loop nor the end of the process."""

    def __init__(self, call: Callable[[], _Result], callee: str, patience_s: float) -> None:
        """Parameter `callee` is the name of the driver, for the message of Unanswered."""
        self._call = call
        self._callee = callee
        self._patience_s = patience_s
        self._running: Future[_Result] | None = None
        self._until = 0.0

    async def result(self) -> _Result:
        """Calls the function, or waits for the running call, and returns the result. Raises Unanswered
        if the call does not return within `patience_s` after the call's start. If this time is already
        over, raises Unanswered at once. Also raises the function's own errors."""
        now = asyncio.get_running_loop().time()
        if self._running is None:
            self._running = _in_thread(self._call)
            self._until = now + self._patience_s
        await asyncio.wait({self._running}, timeout=max(self._until - now, 0.0))
        if not self._running.done():
            raise Unanswered(f"{self._callee} has not answered for {self._patience_s:g} s")
        ended, self._running = self._running, None
        return ended.result()


def _in_thread(call: Callable[[], _Result]) -> Future[_Result]:
    """Runs the call outside of an executor, because Python waits at its end for the threads of
    executors."""
    loop = asyncio.get_running_loop()
    result: Future[_Result] = loop.create_future()
    result.add_done_callback(Future.exception)  # otherwise asyncio logs an error if no task waits

    def act() -> None:
        settle: Callable[[], None]
        try:
            settle = partial(result.set_result, call())
        except Exception as error:  # noqa: BLE001 -- `result` raises the error
            settle = partial(result.set_exception, error)
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=act, name="hang-safe-call", daemon=True).start()
    return result
