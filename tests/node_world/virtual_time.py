"""An event loop with virtual time. The time passes only while all tasks wait, and jumps to the next
timer.

Work for threads is done at once, in the loop's own thread.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, contextmanager
from datetime import datetime, tzinfo
from types import ModuleType
from typing import Any, TypeVar
from unittest.mock import patch

T = TypeVar("T")
EPOCH = 1_800_000_000.0
"""The virtual time of the start, in UNIX seconds."""
_TURN_S = 1e-6
"""Virtual seconds of a turn of the loop. The resolution of a float after EPOCH is a quarter of this
time."""
_MAX_TURNS = 100_000
"""Largest number of turns in a row without a pause."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time starts at EPOCH."""

    def __init__(self) -> None:
        self.now = EPOCH
        super().__init__(_Jumps(self))
        self._clock_resolution = _TURN_S

    def time(self) -> float:
        return self.now

    def run_in_executor(self, _executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 -- it is raised where the result is waited for
            done.set_exception(error)
        return done


class _Jumps(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._turns = 0  # without a pause

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "every task waits for another one"
        self._turns = 0 if timeout > 0 else self._turns + 1
        assert self._turns < _MAX_TURNS, "a task never pauses"
        self._loop.now += max(_TURN_S, timeout)
        return super().select(0)


def run(work: Callable[[], Coroutine[Any, Any, T]], *modules: ModuleType) -> T:
    """Runs a coroutine to the end in virtual time. `datetime.now` of these modules also returns virtual
    time."""
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner, clocks_of(loop, modules):
        return runner.run(work())


@contextmanager
def clocks_of(loop: VirtualLoop, modules: tuple[ModuleType, ...]) -> Any:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(loop.now, tz)

    with ExitStack() as patches:
        for module in modules:
            patches.enter_context(patch.object(module, "datetime", Clock))
        for name in ("time", "monotonic"):
            patches.enter_context(patch.object(time, name, loop.time))
        yield
