"""/filter: the Node that Slurm granted, or none.

For a managed Pod the answer is a function of the request alone: the Pod carries its allocation. For any
other Pod it is the Nodes where Slurm leaves room, as known at this moment. The verb never waits,
however busy Slurm is; /bind checks again that the answer is true. Reasons are constant texts:
kube-scheduler takes a changed message for news and tries again at once. Wire format:
k8s.io/kube-scheduler/extender/v1, ExtenderArgs and ExtenderFilterResult.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from extender.pod_request.manifest import PodManifest
from extender.pod_request.pod import is_retried
from extender.pod_request.translation import TranslationConfig
from extender.routing import Items, VerbRoute, reply
from extender.unmanaged.free_capacity import FreeCapacity
from kubernetes_client.protocol import Manifest
from wellknown.allocation import Allocation
from wellknown.names import ELSEWHERE, WAITING

NO_NAMES = (
    "the request has no NodeNames: set nodeCacheCapable: true for slurm-extender in the"
    " KubeSchedulerConfiguration"
)


class FilterArgs(BaseModel):
    """ExtenderArgs; `NodeNames` is null unless the extender is nodeCacheCapable."""

    Pod: PodManifest
    NodeNames: Items[str] | None = None


def verdict(
    pod: Manifest, node_names: Sequence[str], translation: TranslationConfig, capacity: FreeCapacity
) -> dict[str, Any]:
    """Returns the ExtenderFilterResult: one Node, none, or (for an unmanaged Pod) the Nodes with
    room. After an error kube-scheduler asks again within 10 s; after a reply without Nodes, when
    something changes, or within five minutes."""
    if not translation.manages(pod):
        closed = capacity.closed(pod, node_names)
        nowhere = bool(closed) and len(closed) == len(node_names)
        unknown = capacity.not_known_yet(pod) if nowhere else None
        return _open(node_names, closed) if unknown is None else {"Error": unknown}
    allocation = allocated(pod)
    reason = WAITING if allocation is None else ELSEWHERE
    if allocation is not None and allocation.node in node_names:
        taken = _taken(pod, allocation, capacity)
        if taken is None:
            return {"NodeNames": [allocation.node], "FailedNodes": {}}
        reason = taken
    return {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(node_names, reason)}


def to_tell(
    allocation: Allocation | None, names: Sequence[str], *, retried: bool, taken: bool
) -> Sequence[str]:
    """Returns the Nodes that kube-scheduler offers to a managed Pod, if placement has to know the Nodes.
    `retried` is True after an attempt; `taken` is True if other Pods have the allocated resources
    (`free_capacity.TAKEN`): then the Pod can only be bound elsewhere."""
    if allocation is None:
        return names if retried else ()
    if allocation.node not in names:
        return names
    return [name for name in names if name != allocation.node] if taken else ()


def allocated(pod: Manifest) -> Allocation | None:
    """Returns the allocation in a Pod's annotations."""
    return Allocation.parse(pod["metadata"].get("annotations") or {})


def _taken(pod: Manifest, allocation: Allocation, capacity: FreeCapacity) -> str | None:
    return capacity.closed_to_ours(pod["metadata"].get("uid") or "", allocation)


def _open(node_names: Sequence[str], closed: Mapping[str, str]) -> dict[str, Any]:
    """Returns the reply for an unmanaged Pod. No eviction of a Pod makes Slurm give a Node back: hence
    unresolvable."""
    if not closed:
        return {"NodeNames": node_names, "FailedNodes": {}}
    return {
        "NodeNames": [name for name in node_names if name not in closed],
        "FailedAndUnresolvableNodes": closed,
    }


Offered = Callable[[Manifest, Allocation | None, Sequence[str]], None]


def router(translation: TranslationConfig, capacity: FreeCapacity, offered: Offered) -> APIRouter:
    """Returns the route. `offered` is called with the Nodes that kube-scheduler offers, if a Pod cannot
    use the allocated Node, or after an attempt: Slurm may have to know these Nodes before the next
    attempt."""
    routes = APIRouter(route_class=VerbRoute)

    @routes.post("/filter")
    async def filter_nodes(request: Request) -> Response:
        args = FilterArgs.model_validate_json(await request.body())
        if args.NodeNames is None:
            return reply({"Error": NO_NAMES})
        if args.NodeNames and translation.manages(args.Pod):
            granted = allocated(args.Pod)
            taken = granted is not None and _taken(args.Pod, granted, capacity) is not None
            others = to_tell(granted, args.NodeNames, retried=is_retried(args.Pod), taken=taken)
            if others:
                offered(args.Pod, granted, others)
        return reply(verdict(args.Pod, args.NodeNames, translation, capacity))

    return routes
