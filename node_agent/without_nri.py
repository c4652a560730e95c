"""What the kubelet gives a container where the container runtime asks nobody (no NRI).

The kubelet asks at admission, and names devices of its own choice, not the Pod. Only where a container
has all of a Node's devices is it known which are its job's: then it is given them. Else its Pod is not
admitted: it would have other devices than its job.
"""

from collections.abc import Collection
from pathlib import Path

from node_agent.equipment import equipment
from node_agent.keeper import Keeper
from node_agent.kubelet import device_plugin_pb2 as api

_READ_AND_WRITE = "rw"


def whole_node(
    keeper: Keeper, resource: str, gres: str, asked: Collection[str]
) -> api.ContainerAllocateResponse:
    """Returns what a container is given that is to have devices of an extended resource, which is a
    GRES; `asked` are the kubelet's names of them. Raises ValueError, with words for the Pod's author,
    where these are not all that are of use, or it is not known how they are called."""
    units = keeper.units(resource, gres)
    of_use = {name: part for name, part in keeper.of_resource(resource, gres).items() if units[name]}
    if {*asked} != of_use.keys():
        raise ValueError(
            f"it asks for {len(asked)} of the {len(of_use)} {resource} that are of use here: on a Node "
            f"without NRI (NODE_AGENT_NRI) a container has all of them, or none"
        )
    devices = list({part.device.files: part.device for part in of_use.values()}.values())
    name = gres.partition(":")[0]
    given = equipment(devices, keeper.names, keeper.devices, (), {name: len(asked)})
    files = sorted([*given.files, *(file for file in given.common if Path(file).exists())])
    return api.ContainerAllocateResponse(
        envs=given.variables,
        devices=[
            api.DeviceSpec(container_path=file, host_path=file, permissions=_READ_AND_WRITE)
            for file in files
        ],
        cdi_devices=[api.CDIDevice(name=name) for name in sorted(given.cdi)],
    )
