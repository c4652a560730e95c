"""What works and what does not, for probes and for people.

/readyz names what is in trouble and no more: whoever can reach the port may read it, and what is wrong
with it names files, addresses, Nodes and Pods. That is in the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog
from fastapi import APIRouter, Response

from extender.seldom import Seldom
from extender.wire import reply

log = structlog.get_logger()

_LOOK_S = 5.0


class Health:
    """Every part that can be in trouble says so here. Ready means recovered: from then on Pods move
    whenever both systems let them, and trouble with either is shown but takes nobody out of service."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._troubles: dict[str, str | None] = {}
        """Of every part that ever had any; None: none now."""
        self._words: dict[str, Seldom] = {}
        """Trouble that lasts may get other words very often."""
        self.ready = False

    def says(self, part: str, trouble: str | None, *, alarm: bool = False) -> None:
        """Notes a part's trouble, or (None) that it has none, and logs that where it is news: the part
        itself need not. An alarm is logged as an error, other trouble as a warning."""
        before = self._troubles.get(part)
        if trouble is not None or part in self._troubles:
            self._troubles[part] = trouble
        if trouble is None:
            if before is not None:
                log.info("trouble over", part=part)
            return
        if before is None:
            self._words[part] = Seldom("trouble", self._clock, alarm=alarm)
        if trouble != before:
            self._words[part].says(part=part, error=trouble)

    def make_up(self) -> None:
        """Logs the words of troubles that came too soon after others of the same part, once they may be
        logged: many a part says each only once."""
        for part, trouble in self._troubles.items():
            if trouble is not None:
                self._words[part].makes_up(part=part, error=trouble)

    async def run(self) -> None:
        """Makes up for what was not logged, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.make_up()

    def parts(self) -> dict[str, bool]:
        """Returns, for every part that ever was in trouble, whether it is now."""
        return {part: trouble is not None for part, trouble in self._troubles.items()}

    def report(self) -> dict[str, object]:
        """Returns readiness and every trouble, by part."""
        troubles = {part: trouble for part, trouble in self._troubles.items() if trouble is not None}
        return {"ready": self.ready, "troubles": troubles}

    def for_strangers(self) -> dict[str, object]:
        """Returns what anybody may know: readiness, and the names of the parts that are in trouble."""
        return {"ready": self.ready, "troubles": sorted(p for p, bad in self.parts().items() if bad)}


def router(health: Health) -> APIRouter:
    """Returns the probes' routes."""
    routes = APIRouter()

    @routes.get("/healthz")
    async def healthz() -> Response:
        return reply({"alive": True})

    @routes.get("/readyz")
    async def readyz() -> Response:
        return reply(health.for_strangers(), 200 if health.ready else 503)

    return routes
