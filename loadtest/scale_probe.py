"""`python -m loadtest.scale_probe FILE`: the extender, watched from the inside while it works.

How long its event loop was held cannot be told from outside on a machine that others keep busy. So one
task of it does nothing but sleep, and notes how late it woke, and how much of that the loop's own thread
had spent: being late is whatever made it late, CPU is its own. Everything else is the extender's.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from extender import app
from extender.policy.keeper import PolicyKeeper
from extender.settings import Settings

_TICK_S: Final = 0.005
_PAGE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Ticks:
    """Half a second of them, in milliseconds; `at` is its end, by `time.monotonic`, of all processes."""

    at: float
    late: tuple[float, ...]
    """Between the moment when the task was to wake, and when it did."""
    held: tuple[float, ...]
    """Of that time, what the loop's thread spent on a CPU."""


def read_ticks(path: Path, begin: float, end: float) -> list[Ticks]:
    """Those of a span of time. A last line that is not whole yet is left."""
    found = []
    for line in path.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            at, late, held = json.loads(line)
            if begin <= at <= end:
                found.append(Ticks(at, tuple(late), tuple(held)))
    return found


async def watch(path: Path) -> None:
    """Ticks for ever."""
    with path.open("a", buffering=1) as file:
        late, held, written = list[float](), list[float](), time.monotonic()
        while True:
            began, spent = time.monotonic(), time.thread_time()
            await asyncio.sleep(_TICK_S)
            now, used = time.monotonic(), time.thread_time() - spent
            lateness = max(0.0, now - began - _TICK_S)
            late.append(round(lateness * 1000, 2))
            held.append(round(min(lateness, used) * 1000, 2))
            if now - written >= _PAGE_S:
                file.write(json.dumps([now, late, held]) + "\n")
                late, held, written = [], [], now


def main(arguments: Iterable[str]) -> None:
    """Runs the extender, and beside it what watches it."""
    (path,) = arguments
    serve = app.serve

    async def watched(settings: Settings, policy: PolicyKeeper) -> None:
        ticking = asyncio.ensure_future(watch(Path(path)))
        try:
            await serve(settings, policy)
        finally:
            ticking.cancel()

    app.serve = watched
    app.main()


if __name__ == "__main__":
    main(sys.argv[1:])
