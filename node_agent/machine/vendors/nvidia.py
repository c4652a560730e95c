"""NVIDIA's GPUs. NVML, NVIDIA's own library, takes 16 MB of memory in Python, so the modules with NVML
are loaded only on a machine with an NVIDIA GPU."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from node_agent.machine.devices import Device, DriverWatch, GpuVendor, Number
from node_agent.machine.sysfs import MIG_MINORS, PCI_DEVICES


class _Nvidia(GpuVendor):
    name = "NVIDIA"
    source = "NVML"
    pci = "0x10de"
    files = "/dev/nvidia"
    unnamed = True
    domain = "nvidia.com"
    common = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
    numbers = frozenset(Number(195, minor) for minor in range(254))
    """Minors 254 and 255 are files of all GPUs together, and give access to no GPU."""
    library = "CUDA_VISIBLE_DEVICES"
    runtime = "NVIDIA_VISIBLE_DEVICES"
    must_report = re.compile(r"/dev/nvidia\d+", re.ASCII)

    def read(self, pci: Path = PCI_DEVICES, mig_minors: Path = MIG_MINORS) -> tuple[Device, ...]:
        """Returns the instances of a GPU in MIG mode in place of the GPU."""
        if not self.buses(pci):
            return ()
        from node_agent.machine.vendors import nvml  # noqa: PLC0415 -- see above

        return tuple(replace(device, vendor=self) for device in nvml.read(pci, mig_minors))

    def watch(self) -> DriverWatch | None:
        if not self.buses():
            return None
        from node_agent.machine.vendors.xid import XidWatch  # noqa: PLC0415 -- see above

        return XidWatch()


NVIDIA: Final = _Nvidia()
