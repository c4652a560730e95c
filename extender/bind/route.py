"""/bind: see `binder`.

Wire format: k8s.io/kube-scheduler/extender/v1, ExtenderBindingArgs and ExtenderBindingResult.
"""

from __future__ import annotations

import structlog
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from extender.bind.binder import Binder, NotBound, Target
from extender.wire import read, reply

log = structlog.get_logger()


class BindArgs(BaseModel):
    """ExtenderBindingArgs."""

    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


def router(binder: Binder) -> APIRouter:
    """Returns the route."""
    routes = APIRouter()

    async def bind(request: Request) -> Response:
        args = await read(request, BindArgs)
        target = Target(args.PodNamespace, args.PodName, args.PodUID, args.Node)
        try:
            await binder.bind(target)
        except NotBound as error:
            pod = f"{target.namespace}/{target.name}"
            log.warning("not bound", pod=pod, uid=target.uid, node=target.node, why=str(error))
            return reply({"Error": str(error)})
        return reply({"Error": ""})

    routes.add_route("/bind", bind, methods=["POST"])
    return routes
