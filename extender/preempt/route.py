"""/preempt: the victims whose eviction helps, among the victims that kube-scheduler proposes.

A managed Pod has no victims: only Slurm preempts for managed Pods. kube-scheduler proposes without
/filter, and would evict one Pod after the other for a Pod that Slurm has not admitted. Any other Pod
gets the proposed victims on the Nodes that are open afterwards (`FreeCapacity.open_without`), and no
other victims: kube-scheduler finds the fewest and least important. Wire format:
k8s.io/kube-scheduler/extender/v1, ExtenderPreemptionArgs and ExtenderPreemptionResult.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import AfterValidator, BaseModel

from extender.pod_request.manifest import PodManifest
from extender.pod_request.translation import TranslationConfig
from extender.routing import VerbRoute, reply
from extender.unmanaged.free_capacity import FreeCapacity


def _all_victims(given: dict[str, Any]) -> dict[str, Any]:
    try:
        named = all(isinstance(uid, str) for victims in given.values() for uid in _uids(victims))
    except (KeyError, TypeError):
        named = False
    if not named:
        raise ValueError("victims have Pods, each with its UID")
    return given


def _uids(victims: dict[str, Any]) -> list[str]:
    return [pod["UID"] for pod in victims["Pods"]]


class PreemptionArgs(BaseModel):
    """ExtenderPreemptionArgs. The victims are null unless the extender is nodeCacheCapable: then /filter
    closes every Node. Validation ends at the first wrong victim."""

    Pod: PodManifest
    NodeNameToMetaVictims: Annotated[dict[str, Any], AfterValidator(_all_victims)] | None = None


def router(translation: TranslationConfig, capacity: FreeCapacity) -> APIRouter:
    """Returns the route."""
    routes = APIRouter(route_class=VerbRoute)

    @routes.post("/preempt")
    async def preempt(request: Request) -> Response:
        args = PreemptionArgs.model_validate_json(await request.body())
        proposed = {} if translation.manages(args.Pod) else args.NodeNameToMetaVictims or {}
        victims = {node: _uids(each) for node, each in proposed.items()}
        nodes = await capacity.open_without(args.Pod, victims)
        return reply({"NodeNameToMetaVictims": {node: proposed[node] for node in nodes}})

    return routes
