"""Computes the files and environment variables that a container gets for the devices of its Pod's job.
The functions are pure.

If CDI has a specification of a device, the container gets the device by CDI. Otherwise the container
gets the device's own files, and the files that all devices of the vendor share. Environment variables
name the devices for the vendor's libraries. The kernel keeps a container away from all other devices
(device_guard).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from node_agent.machine.devices import Device, GpuVendor, Names
from node_agent.machine.gpu_vendors import VENDORS

_NOTHING: Final = "void"
"""With this value, a vendor's container runtime adds no device to a container, even if the image
requests devices."""
_MPS: Final = "mps"
_PERCENTAGE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""Variable with the share of a GPU for a container's programs, if an MPS server runs the programs
(CUDA)."""


class ContainerDevices(NamedTuple):
    """Additions to a container."""

    files: frozenset[str] = frozenset()
    common: frozenset[str] = frozenset()
    """Further files. A container gets such a file only if the Node has the file."""
    cdi: frozenset[str] = frozenset()
    variables: Mapping[str, str] = {}

    def missing(self, files: Iterable[str], cdi: Iterable[str], variables: Mapping[str, str]) -> str:
        """Returns the additions that a container lacks, or "" if the container has all additions."""
        others = (name for name, value in self.variables.items() if variables.get(name) != value)
        return ", ".join([*sorted(self.files - {*files}), *sorted(self.cdi - {*cdi}), *others])


def container_devices(
    devices: Sequence[Device],
    names: Mapping[frozenset[str], Names],
    counted: Sequence[Device],
    variables: Collection[str],
    parts: Mapping[str, int] = MappingProxyType({}),
) -> ContainerDevices:
    """Returns the additions to a container with these devices. Parameter `counted` has all devices that
    Slurm counts here. Parameter `variables` has the names of the container's own variables. Parameter
    `parts` has the number of parts of GPUs, by the name of the parts' GRES. Raises ValueError if the
    UUID of a device is unknown."""
    called = [(device, names.get(frozenset(device.files), Names())) for device in devices]
    by_file = [device for device, name in called if not name.cdi]
    environment = _percentage(devices, parts.get(_MPS, 0))
    common = set[str]()
    for vendor in VENDORS:
        of_vendor = [each for each in called if each[0].vendor is vendor]
        if of_vendor:
            environment |= _variables(vendor, of_vendor)
        elif vendor.runtime in variables and any(device.vendor is vendor for device in counted):
            environment[vendor.runtime] = _NOTHING
        if any(device.vendor is vendor for device in by_file):
            common |= {*vendor.common}
    files = frozenset(file for device in by_file for file in device.files)
    return ContainerDevices(files, frozenset(common), frozenset(_cdi(called)), environment)


def _percentage(devices: Sequence[Device], parts: int) -> dict[str, str]:
    """Returns the variable for parts of a GPU, with the same value as from Slurm's gres/mps (gres_mps.c:
    _set_env). If the job has several GPUs, the first GPU counts."""
    count = next((device.shared[_MPS] for device in devices if device.shared.get(_MPS)), 0)
    return {_PERCENTAGE: str(max(1, parts * 100 // count))} if parts and count else {}


def _cdi(called: Iterable[tuple[Device, Names]]) -> Iterator[str]:
    return (name.cdi for _, name in called if name.cdi)


def _variables(vendor: GpuVendor, called: Sequence[tuple[Device, Names]]) -> dict[str, str]:
    if not vendor.library:
        return {}
    for device, name in called:
        if not name.uuid:
            raise ValueError(f"the driver does not report the UUID of {', '.join(device.files)}")
    uuids = ",".join(name.uuid for _, name in called)
    by_runtime = _NOTHING if any(_cdi(called)) else uuids
    return {vendor.library: uuids} | ({vendor.runtime: by_runtime} if vendor.runtime else {})
