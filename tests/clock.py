"""A clock that tests move, and CPU time for tests with a limit on it.

Machines differ by a factor of two, and so does one machine from one second to the next. CpuClock divides
by how slow the machine is, before or after the measured work, whichever is more.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from time import process_time

_NUMBERS = 500_000
_TEXT = json.dumps([{"key": f"k{number}", "values": [str(number)]} for number in range(20_000)])
_USUALLY_S = 0.016, 0.008
"""What adding and parsing take on the machine for which the limits are written: 2 cores of an AMD EPYC
9004, Python 3.11 of Debian."""


class Clock:
    """Stands still until a test moves `now`, in seconds."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class CpuClock:
    """Starts when it is made."""

    def __init__(self) -> None:
        self._slowness = slowness()
        self._began = process_time()

    def read(self) -> float:
        """Returns the CPU seconds since the start, as on that machine."""
        took = process_time() - self._began
        return took / max(self._slowness, slowness())


def slowness() -> float:
    """Returns how many times longer this machine takes now than that machine, and at least 1.

    A machine may be slow at arithmetic, or at memory that it has not touched before. Both count: the
    reader of a large request mostly allocates."""
    took = _seconds(lambda: sum(map(int, range(_NUMBERS)))), _seconds(lambda: json.loads(_TEXT))
    return max(1.0, *(each / usual for each, usual in zip(took, _USUALLY_S, strict=True)))


def _seconds(work: Callable[[], object]) -> float:
    collects = gc.isenabled()
    gc.disable()
    began = process_time()
    work()
    took = process_time() - began
    if collects:
        gc.enable()
    return took
