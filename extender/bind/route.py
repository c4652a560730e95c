"""The route of kube-scheduler's verb /bind: `binder` does the work.

Wire format: k8s.io/kube-scheduler/extender/v1, ExtenderBindingArgs and ExtenderBindingResult.
"""

import structlog
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from extender.bind.binder import Binder, Target
from extender.bind.job_as_read import NotBound
from extender.routing import VerbRoute, reply
from service.health import Health, common_problem
from wellknown.log_fields import about

log = structlog.get_logger()


class BindArgs(BaseModel):
    """ExtenderBindingArgs."""

    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


def router(binder: Binder, health: Health) -> APIRouter:
    """Returns the route. While a known outage lasts, failed calls with this cause are logged only at the
    level DEBUG."""
    routes = APIRouter(route_class=VerbRoute)

    @routes.post("/bind")
    async def bind(request: Request) -> Response:
        args = BindArgs.model_validate_json(await request.body())
        target = Target(args.PodNamespace, args.PodName, args.PodUID, args.Node)
        try:
            await binder.bind(target)
        except NotBound as error:
            cause = error.__cause__
            tell = health.news(common_problem(cause), log.warning)
            named = about(target, binder.job_of(target))
            tell("not bound", **named, node=target.node, why=str(error), inner=cause and str(cause))
            return reply({"Error": str(error)})
        return reply({"Error": ""})

    return routes
