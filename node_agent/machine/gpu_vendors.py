"""The vendors of GPUs that the agent knows, and the vendor of a device."""

from dataclasses import replace
from typing import Final

from node_agent.machine.devices import Device, GpuVendor
from node_agent.machine.vendors.amd import AMD
from node_agent.machine.vendors.nvidia import NVIDIA

VENDORS: Final[tuple[GpuVendor, ...]] = (NVIDIA, AMD)
"""If several vendors own a device, the first vendor counts."""


def with_vendor(device: Device) -> Device:
    """Returns the device with its vendor, by the files of the device."""
    owners = (each for each in VENDORS if any(file.startswith(each.files) for file in device.files))
    return replace(device, vendor=next(owners, None))


def may_be(resource: str, device: Device) -> bool:
    """Returns True if the device may be one of an extended resource: a vendor's resource has only the
    vendor's devices."""
    domain = resource.partition("/")[0]
    vendor = next((each for each in VENDORS if each.domain == domain), None)
    return vendor is None or device.vendor is vendor
