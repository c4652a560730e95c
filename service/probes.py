"""The probes of a program: liveness, readiness, and the names of problems."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from service.health import Health


def application(health: Health) -> Starlette:
    """Returns the application for the probes."""

    async def healthz(_: Request) -> Response:
        return JSONResponse({"alive": True})

    async def readyz(_: Request) -> Response:
        return JSONResponse(health.for_strangers(), 200 if health.ready else 503)

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz)])
