"""CPU time for tests with a limit on it: machines differ by twice in how fast they are, and one differs
from itself by the second. What is measured is divided by how slow the machine was before or after it,
whichever is more.
"""

from __future__ import annotations

from time import process_time

_WORK = 500_000
_USUALLY_S = 0.016
"""What the yardstick takes on the machine that the limits are written for: 2 cores of an AMD EPYC 9004,
Python 3.11 of Debian."""


class CpuClock:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._slowness = slowness()
        self._began = process_time()

    def read(self) -> float:
        """Returns the CPU seconds since then, as on that machine."""
        took = process_time() - self._began
        return took / max(self._slowness, slowness())


def slowness() -> float:
    """Returns how many times longer this machine takes just now than that one, and at least 1."""
    return max(1.0, _yardstick() / _USUALLY_S)


def _yardstick() -> float:
    began, total = process_time(), 0
    for number in range(_WORK):
        total += number
    return process_time() - began
