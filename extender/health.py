"""What works and what does not, for probes and for people."""

from __future__ import annotations

from fastapi import APIRouter, Response

from extender.wire import reply


class Health:
    """Every part that can be in trouble says so here. Ready means recovered: from then on Pods move
    whenever both systems let them, and trouble with either is shown but takes nobody out of service."""

    def __init__(self) -> None:
        self._troubles: dict[str, str | None] = {}
        """Of every part that ever had any; None: none now."""
        self.ready = False

    def says(self, part: str, trouble: str | None) -> bool:
        """Notes a part's trouble, or (None) that it has none. Tells whether that is news."""
        before = self._troubles.get(part)
        if trouble is not None or part in self._troubles:
            self._troubles[part] = trouble
        return (before is None) != (trouble is None)

    def parts(self) -> dict[str, bool]:
        """Returns, for every part that ever was in trouble, whether it is now."""
        return {part: trouble is not None for part, trouble in self._troubles.items()}

    def report(self) -> dict[str, object]:
        """Returns readiness and every trouble, by part."""
        troubles = {part: trouble for part, trouble in self._troubles.items() if trouble is not None}
        return {"ready": self.ready, "troubles": troubles}


def router(health: Health) -> APIRouter:
    """Returns the probes' routes."""
    routes = APIRouter()

    @routes.get("/healthz")
    async def healthz() -> Response:
        return reply({"alive": True})

    @routes.get("/readyz")
    async def readyz() -> Response:
        return reply(health.report(), 200 if health.ready else 503)

    return routes
