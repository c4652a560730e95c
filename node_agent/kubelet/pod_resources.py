"""The devices of each Pod by the kubelet's own count: the kubelet's PodResources API
(pkg/apis/podresources/v1). Monitoring programs read the same API."""

from pathlib import Path

from node_agent.kubelet import pod_resources_pb2 as api
from node_agent.kubelet.call import ask

_LIST = "/v1.PodResourcesLister/List"


async def devices_of_pods(socket: Path, resource: str) -> dict[str, frozenset[str]]:
    """Returns the devices of a resource by the namespace and name of each Pod; the set is empty for a
    Pod without such devices. Raises OSError."""
    told = await ask(socket, _LIST, api.ListPodResourcesRequest(), api.ListPodResourcesResponse)
    return {
        f"{pod.namespace}/{pod.name}": frozenset(
            device
            for container in pod.containers
            for of in container.devices
            if of.resource_name == resource
            for device in of.device_ids
        )
        for pod in told.pod_resources
    }
