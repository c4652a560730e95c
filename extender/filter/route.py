"""The route of kube-scheduler's verb /filter: returns the Node that Slurm granted to a Pod, or no Node.

For a managed Pod, the answer depends on the Pod's allocation, and on the allocatable devices of the
Node. For any other Pod, the answer has the Nodes where Slurm leaves room, as far as the extender knows
at this moment. The verb never waits for Slurm; /bind checks the answer again. The reasons for rejected
Nodes are constant texts, because a changed message would make kube-scheduler try the Pod again at once.
Wire format: k8s.io/kube-scheduler/extender/v1, ExtenderArgs and ExtenderFilterResult.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from extender.explain.wording import NOT_SERVED
from extender.node_view.view import ClusterView
from extender.pod_request.job_request import devices_of
from extender.pod_request.manifest import PodManifest
from extender.pod_request.pod import is_retried
from extender.pod_request.translation import TranslationConfig
from extender.routing import Items, VerbRoute, reply
from extender.unmanaged.free_capacity import FreeCapacity
from kubernetes_client.protocol import Manifest
from wellknown.allocation import Allocation
from wellknown.names import ELSEWHERE, WAITING
from wellknown.resources import effective_requests

NO_NAMES = (
    "the request has no NodeNames: set nodeCacheCapable: true for slurm-extender in the"
    " KubeSchedulerConfiguration"
)
Offered = Callable[[Manifest, Allocation | None, Sequence[str]], None]


class FilterArgs(BaseModel):
    """ExtenderArgs; `NodeNames` is null unless the extender is nodeCacheCapable."""

    Pod: PodManifest
    NodeNames: Items[str] | None = None


def _granted(allocation: Allocation | None, taken: str | None, names: Sequence[str]) -> dict[str, Any]:
    """Returns the reply for a managed Pod. After a reply without Nodes, kube-scheduler asks again after
    a relevant change in Kubernetes, or within five minutes."""
    if allocation is None:
        reason = WAITING
    elif allocation.node not in names:
        reason = ELSEWHERE
    elif taken is None:
        return {"NodeNames": [allocation.node], "FailedNodes": {}}
    else:
        reason = taken
    return {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(names, reason)}


def to_offer(
    allocation: Allocation | None, names: Sequence[str], *, retried: bool, taken: bool
) -> Sequence[str]:
    """Returns the Nodes, except the allocated Node, that kube-scheduler offers to a managed Pod. Returns
    no Nodes if the Pod can use the allocated Node, or has neither an allocation nor an earlier attempt
    (`retried`). If `taken` is True, the Pod cannot be bound to the allocated Node."""
    if allocation is None:
        return names if retried else ()
    if allocation.node not in names:
        return names
    return [name for name in names if name != allocation.node] if taken else ()


def _with_room(pod: Manifest, names: Sequence[str], capacity: FreeCapacity) -> dict[str, Any]:
    """Returns the reply for an unmanaged Pod. After an error kube-scheduler asks again within 10 s.
    Closed Nodes are in `FailedAndUnresolvableNodes`, so that kube-scheduler evicts no Pods there: no
    eviction makes Slurm give a Node back."""
    closed = capacity.closed(pod, names)
    if not closed:
        return {"NodeNames": names, "FailedNodes": {}}
    unknown = capacity.not_known_yet(pod) if len(closed) == len(names) else None
    if unknown is not None:
        return {"Error": unknown}
    is_open = [name for name in names if name not in closed]
    return {"NodeNames": is_open, "FailedAndUnresolvableNodes": closed}


def _not_served(
    pod: Manifest, allocation: Allocation, view: ClusterView, translation: TranslationConfig
) -> str | None:
    """Returns why a Pod may not use the allocated Node; None if the Pod may. Since the grant, the
    kubelet of the Node may have stopped reporting allocatable devices. kube-scheduler may then choose
    the Pod's devices by Dynamic Resource Allocation, independently of Slurm."""
    node = view.nodes.get(allocation.node) if allocation.gres else None
    if node is None or node.serves(devices_of(effective_requests(pod["spec"]), translation)):
        return None
    return NOT_SERVED


def router(
    translation: TranslationConfig,
    capacity: FreeCapacity,
    offered: Offered,
    view: Callable[[], ClusterView],
) -> APIRouter:
    """Returns the route. `offered` is called with the Nodes that kube-scheduler offers, if a Pod cannot
    use the allocated Node or has had an attempt. The next attempt may need these Nodes. `view` returns
    the newest view of the Nodes."""
    routes = APIRouter(route_class=VerbRoute)

    @routes.post("/filter")
    async def filter_nodes(request: Request) -> Response:
        args = FilterArgs.model_validate_json(await request.body())
        pod, names = args.Pod, args.NodeNames
        if names is None:
            return reply({"Error": NO_NAMES})
        if not translation.manages(pod):
            return reply(_with_room(pod, names, capacity))
        metadata = pod["metadata"]
        allocation = Allocation.parse(metadata.get("annotations") or {})
        taken = None
        if allocation is not None:
            taken = capacity.closed_to_ours(metadata.get("uid") or "", allocation)
            taken = taken or _not_served(pod, allocation, view(), translation)
        others = to_offer(allocation, names, retried=is_retried(pod), taken=taken is not None)
        if others:
            offered(pod, allocation, others)
        return reply(_granted(allocation, taken, names))

    return routes
