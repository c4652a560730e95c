"""/prioritize: constant scores. Slurm has chosen already; the order of a gang's Nodes comes with gangs.

Wire format: k8s.io/kube-scheduler/extender/v1, HostPriorityList, a bare list.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from extender.wire import reply


class PrioritizeArgs(BaseModel):
    """ExtenderArgs, of which only the names are read."""

    model_config = ConfigDict(extra="ignore")

    NodeNames: Sequence[str] | None = None


def router() -> APIRouter:
    """Returns the route."""
    routes = APIRouter()

    @routes.post("/prioritize")
    async def prioritize(args: PrioritizeArgs) -> Response:
        return reply([{"Host": name, "Score": 0} for name in args.NodeNames or ()])

    return routes
