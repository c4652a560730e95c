"""A clock that tests move, and a clock of CPU time for tests with a limit on CPU time.

Machines differ in speed by a factor of two, and a single machine differs as much from one second to the
next. So CpuClock measures how slow the machine is before and after the work, and divides the CPU time by
the larger value.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from time import process_time

_NUMBERS = 500_000
_TEXT = json.dumps([{"key": f"k{number}", "values": [str(number)]} for number in range(20_000)])
_USUALLY_S = 0.016, 0.008
"""CPU time in seconds that the reference machine needs for adding and for parsing. All limits are for
this machine: 2 cores of an AMD EPYC 9004, Python 3.11 of Debian."""


class Clock:
    """A clock that stands still until a test moves `now`, in seconds."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class CpuClock:
    """A clock of this process's CPU time. The clock starts when it is made."""

    def __init__(self) -> None:
        self._slowness = slowness()
        self._began = process_time()

    def read(self) -> float:
        """Returns the CPU seconds since the start, converted to the reference machine."""
        took = process_time() - self._began
        return took / max(self._slowness, slowness())


def slowness() -> float:
    """Returns how slow this machine is at the moment: the CPU time of a task, divided by the CPU time of
    the same task on the reference machine. The result is at least 1.

    Two tasks are measured, and the larger quotient counts, because a machine may be slow at arithmetic
    or at the first use of memory. The reader of a large request mostly allocates memory.
    """
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
