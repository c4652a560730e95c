"""Number of devices for the kubelet, and the devices that the kubelet gives containers without NRI.

Without NRI, the container runtime does not ask the agent. The kubelet asks at admission, but names
devices of the kubelet's own choice, and not the Pod. If a container gets all devices of a Node, the
agent knows which devices are the job's. If a container asks for fewer, the kubelet rejects the Pod,
because the Pod would get other devices than its job.
"""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from node_agent.enforcement.keeper import Keeper
from node_agent.kubelet import device_plugin_pb2 as api
from node_agent.runtime.container_devices import container_devices

_READ_AND_WRITE = "rw"
_COUNT_S = 5.0


async def stay(
    keeper: Keeper,
    folder: Path,
    resource: str,
    gres: str,
    says: Callable[[Exception | str | None], object],
    *,
    gives: bool,
) -> None:
    """Serves the kubelet as the plugin for an extended resource, once the Node has a device of the GRES.
    Never returns. Parameter `gives` is True without NRI: the kubelet then gives the devices of whole
    Nodes."""
    units = partial(keeper.units, resource, gres)
    while not units():  # noqa: ASYNC110 -- slurmd's list, or its first device, may come later
        await asyncio.sleep(_COUNT_S)
    from node_agent.kubelet import device_plugin  # noqa: PLC0415 -- gRPC takes 2 MB of memory

    give = partial(whole_node, keeper, resource, gres) if gives else None
    await device_plugin.stay(folder, resource, units, says, give)


def whole_node(
    keeper: Keeper, resource: str, gres: str, asked: Collection[str]
) -> api.ContainerAllocateResponse:
    """Returns the devices for a container that requests an extended resource. Parameter `asked` has the
    kubelet's names of the devices. Raises ValueError with a message for the Pod's author, if `asked` is
    not all usable devices, or if the UUID of a device is unknown."""
    units = keeper.units(resource, gres)
    of_use = {name: part for name, part in keeper.of_resource(resource, gres).items() if units[name]}
    if {*asked} != of_use.keys():
        raise ValueError(
            f"it asks for {len(asked)} of the {len(of_use)} {resource} that are of use here: on a Node "
            f"without NRI (NODE_AGENT_NRI) a container has all of them, or none"
        )
    devices = list({part.device.files: part.device for part in of_use.values()}.values())
    name = gres.partition(":")[0]
    given = container_devices(devices, keeper.names, keeper.devices, (), {name: len(asked)})
    files = sorted([*given.files, *(file for file in given.common if Path(file).exists())])
    return api.ContainerAllocateResponse(
        envs=given.variables,
        devices=[
            api.DeviceSpec(container_path=file, host_path=file, permissions=_READ_AND_WRITE)
            for file in files
        ],
        cdi_devices=[api.CDIDevice(name=name) for name in sorted(given.cdi)],
    )
