"""The devices of each Pod by the kubelet's own count: the kubelet's PodResources API
(pkg/apis/podresources/v1). Monitoring programs read the same API."""

from pathlib import Path

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, StreamTerminatedError

from node_agent.kubelet import pod_resources_pb2 as api

_LIST = "/v1.PodResourcesLister/List"


async def devices_of_pods(socket: Path, resource: str) -> dict[str, frozenset[str]]:
    """Returns the devices of a resource by the namespace and name of each Pod; the set is empty for a
    Pod without such devices. Raises OSError."""
    asked = api.ListPodResourcesRequest()
    try:
        async with Channel(path=str(socket)) as kubelet:
            call = UnaryUnaryMethod(
                kubelet, _LIST, api.ListPodResourcesRequest, api.ListPodResourcesResponse
            )
            told = await call(asked)
    except GRPCError as error:
        raise OSError(f"the kubelet: {error.message or error.status.name}") from error
    except OSError as error:
        raise OSError(f"the kubelet: {socket}: {error.strerror or error}") from error
    except StreamTerminatedError as error:
        raise OSError(f"the kubelet: {error}") from error
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
