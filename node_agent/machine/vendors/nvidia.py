"""NVIDIA's GPUs. The modules that need NVML, NVIDIA's own library, are loaded only on a machine with
such a GPU: NVML takes 16 MB of memory in Python."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from node_agent.machine.devices import Device, DriverWatch, GpuVendor, Number
from node_agent.machine.sysfs import PCI_DEVICES

MIG_MINORS: Final = Path("/proc/driver/nvidia-caps/mig-minors")
"""The numbers of the files of /dev/nvidia-caps: "gpu0/gi1/ci0/access 13"."""


class _Nvidia(GpuVendor):
    name = "NVIDIA"
    source = "NVML"
    pci = "0x10de"
    files = "/dev/nvidia"
    unnamed = True
    domain = "nvidia.com"
    common = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
    numbers = frozenset(Number(195, minor) for minor in range(254))
    """The minors 254 and 255 are files that all GPUs share: access to these files decides nothing."""
    library = "CUDA_VISIBLE_DEVICES"
    runtime = "NVIDIA_VISIBLE_DEVICES"
    must_report = re.compile(r"/dev/nvidia\d+", re.ASCII)
    """A GPU that has fallen off the bus keeps its files, and NVML reports the GPU without files."""

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
