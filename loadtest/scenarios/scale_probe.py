"""`python -m loadtest.scenarios.scale_probe FILE`: runs the extender and watches its event loop
from inside.

On a machine with other work, an outside observer cannot measure how long the event loop was
blocked. So a task in the extender only sleeps, and records how late it woke. The task also records
how much CPU time the loop's thread used in the meantime.
"""

import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from extender import app
from extender.policy.current import CurrentPolicy
from extender.pools.current import CurrentPools
from extender.settings import Settings

_TICK_S: Final = 0.005
_PAGE_S: Final = 0.5


def read_ticks(path: Path, begin: float, end: float) -> tuple[list[float], list[float]]:
    """Returns the delay of each tick in a span of time, and the CPU time in each delay. Both are in
    milliseconds."""
    late, held = list[float](), list[float]()
    for line in path.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            at, *ticks = json.loads(line)
            if begin <= at <= end:
                late += ticks[0]
                held += ticks[1]
    return late, held


async def watch(path: Path) -> None:
    """Sleeps for _TICK_S again and again; each sleep is a tick. Every half second, writes a line of JSON
    with the current time, the delays, and the CPU times."""
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


def main(path: Path) -> None:
    serve = app.serve

    async def watched(settings: Settings, policy: CurrentPolicy, pools: CurrentPools) -> None:
        ticking = asyncio.ensure_future(watch(path))
        try:
            await serve(settings, policy, pools)
        finally:
            ticking.cancel()

    app.serve = watched
    app.main()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
