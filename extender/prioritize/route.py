"""The route of kube-scheduler's verb /prioritize. All Nodes get the same score, because Slurm has chosen
the Node already. The extender does not order the Nodes of a gang (the Pods of one job) either.

Wire format: k8s.io/kube-scheduler/extender/v1, HostPriorityList, a bare list.
"""

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from extender.routing import Items, VerbRoute, reply


class PrioritizeArgs(BaseModel):
    """ExtenderArgs; only the Nodes' names are read."""

    NodeNames: Items[str] | None = None


def router() -> APIRouter:
    """Returns the route."""
    routes = APIRouter(route_class=VerbRoute)

    @routes.post("/prioritize")
    async def prioritize(request: Request) -> Response:
        args = PrioritizeArgs.model_validate_json(await request.body())
        return reply([{"Host": name, "Score": 0} for name in args.NodeNames or ()])

    return routes
