"""The probes of a program: whether it is alive, whether it is ready, and what is in trouble."""

from fastapi import APIRouter, Response

from service.health import Health
from service.http_server import reply


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
