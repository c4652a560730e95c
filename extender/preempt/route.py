"""The route of kube-scheduler's verb /preempt: returns the victims whose eviction helps, among the
victims that kube-scheduler proposes.

A managed Pod gets no victims, because only Slurm preempts for managed Pods. kube-scheduler does not ask
/filter before a proposal, and would evict one Pod after the other for a Pod that Slurm has not admitted.
Any other Pod gets the proposed victims on the Nodes that are open after the evictions
(`FreeCapacity.open_without`). The extender adds no victims, because kube-scheduler has found the fewest
and least important Pods. Wire format: k8s.io/kube-scheduler/extender/v1, ExtenderPreemptionArgs and
ExtenderPreemptionResult.
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
    """ExtenderPreemptionArgs. If the extender is not nodeCacheCapable, the victims are null, and /filter
    answers with an error. Validation ends at the first wrong victim."""

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
