"""/filter: the Node that Slurm granted, or none.

The answer is a function of the request alone: the Pod carries its allocation. Nothing is looked up and
nothing is waited for, however busy Slurm is; that the allocation is true is checked again by /bind.
Reasons are constant texts: kube-scheduler takes a changed message for news and tries again at once.
Wire format: k8s.io/kube-scheduler/extender/v1, ExtenderArgs and ExtenderFilterResult.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from extender.placement.workload import WAITING, Allocation, Dialect
from extender.wire import PodManifest, reply

ELSEWHERE = "Slurm allocated another Node to this Pod"
NO_NAMES = (
    "the request has no NodeNames: set nodeCacheCapable: true for slurm-extender in the"
    " KubeSchedulerConfiguration"
)


class FilterArgs(BaseModel):
    """ExtenderArgs; `NodeNames` is null unless the extender is nodeCacheCapable."""

    model_config = ConfigDict(extra="ignore")

    Pod: PodManifest
    NodeNames: Sequence[str] | None = None


def verdict(pod: Mapping[str, Any], node_names: Sequence[str], dialect: Dialect) -> dict[str, Any]:
    """Returns the ExtenderFilterResult: one Node, none, or (a Pod that is not ours) all of them."""
    if not dialect.manages(pod):
        return {"NodeNames": node_names, "FailedNodes": {}}
    allocation = Allocation.parse(pod["metadata"].get("annotations") or {})
    if allocation is not None and allocation.node in node_names:
        return {"NodeNames": [allocation.node], "FailedNodes": {}}
    reason = WAITING if allocation is None else ELSEWHERE
    return {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(node_names, reason)}


def router(dialect: Dialect) -> APIRouter:
    """Returns the route."""
    routes = APIRouter()

    @routes.post("/filter")
    async def filter_nodes(args: FilterArgs) -> Response:
        if args.NodeNames is None:
            return reply({"Error": NO_NAMES})
        return reply(verdict(args.Pod, args.NodeNames, dialect))

    return routes
