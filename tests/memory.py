"""How much memory is kept of what was done."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def kept(act: Callable[[], object]) -> int:
    """Returns how many bytes there are more after it than before."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
