"""The vendors of GPUs that the agent knows, and functions to find the vendor of a device."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from node_agent.machine import graphics
from node_agent.machine.devices import Device, GpuVendor
from node_agent.machine.vendors.amd import AMD
from node_agent.machine.vendors.intel import INTEL
from node_agent.machine.vendors.nvidia import NVIDIA

VENDORS: Final[tuple[GpuVendor, ...]] = (NVIDIA, AMD, INTEL)
"""If several vendors own a device, the first vendor counts."""


def with_vendor(device: Device, nodes: Path = graphics.NODES) -> Device:
    """Returns the device with its vendor. The files of the device show the vendor. Parameter `nodes` is
    sysfs's folder for the files in /dev/dri."""
    vendors = (each for each in VENDORS if any(_owns(each, file, nodes) for file in device.files))
    return replace(device, vendor=next(vendors, None))


def _owns(vendor: GpuVendor, file: str, nodes: Path) -> bool:
    if not file.startswith(vendor.files):
        return False
    named = graphics.pci_vendor(file, nodes)
    return named == vendor.pci if named else vendor.unnamed


def may_be(resource: str, device: Device) -> bool:
    """Returns True if the device may count as an extended resource. A vendor's resource counts only
    devices of the vendor."""
    domain = resource.partition("/")[0]
    vendor = next((each for each in VENDORS if each.domain == domain), None)
    return vendor is None or device.vendor is vendor
