"""/prioritize: constant scores. Slurm has chosen already; the order of a gang's Nodes comes with gangs.

Wire format: k8s.io/kube-scheduler/extender/v1, HostPriorityList, a bare list.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from extender.wire import read, reply


class PrioritizeArgs(BaseModel):
    """ExtenderArgs, of which only the names are read."""

    model_config = ConfigDict(extra="ignore")

    NodeNames: Sequence[str] | None = None


def router() -> APIRouter:
    """Returns the route."""
    routes = APIRouter()

    async def prioritize(request: Request) -> Response:
        args = await read(request, PrioritizeArgs)
        return reply([{"Host": name, "Score": 0} for name in args.NodeNames or ()])

    routes.add_route("/prioritize", prioritize, methods=["POST"])
    return routes
