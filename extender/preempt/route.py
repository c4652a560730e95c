"""/preempt: no victims, ever. Slurm preempts.

kube-scheduler would evict a Pod for one that Slurm has not admitted: it asks no filter before.

Wire format: k8s.io/kube-scheduler/extender/v1, ExtenderPreemptionResult.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from extender.wire import reply


def router() -> APIRouter:
    """Returns the route."""
    routes = APIRouter()

    async def preempt(_: Request) -> Response:
        return reply({"NodeNameToMetaVictims": {}})

    routes.add_route("/preempt", preempt, methods=["POST"])
    return routes
