"""Measures the memory that an action leaves in use."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def kept(act: Callable[[], object]) -> int:
    """Calls `act`, and returns the number of bytes that `act` has allocated and not freed."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
