"""Reads the devices of each Pod by the kubelet's own count, from the kubelet's PodResources API
(pkg/apis/podresources/v1). Monitoring programs read the same API."""

from pathlib import Path

from node_agent.kubelet import pod_resources_pb2 as api
from node_agent.kubelet.call import ask

_LIST = "/v1.PodResourcesLister/List"


async def devices_of_pods(socket: Path, resource: str) -> list[tuple[str, frozenset[str]]]:
    """Returns the namespace and name of each Pod, and the Pod's devices of a resource, if any. The
    kubelet may list two Pods of the same name: a Pod that was deleted by force, and its successor.
    Raises OSError."""
    reply = await ask(socket, _LIST, api.ListPodResourcesRequest(), api.ListPodResourcesResponse)
    return [(f"{pod.namespace}/{pod.name}", _devices(pod, resource)) for pod in reply.pod_resources]


def _devices(pod: api.PodResources, resource: str) -> frozenset[str]:
    return frozenset(
        device
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name == resource
        for device in devices.device_ids
    )
