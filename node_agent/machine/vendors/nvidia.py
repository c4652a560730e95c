"""NVIDIA's GPUs. In Python, NVML (NVIDIA's own library) takes 16 MB of memory. So the modules with NVML
are loaded only on a machine with an NVIDIA GPU."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from node_agent.machine.devices import Device, DriverWatch, GpuVendor, Number
from node_agent.machine.sysfs import CHARACTER_DEVICES, MIG_MINORS, PCI_DEVICES, text_of

_GPUS: Final = frozenset(Number(195, minor) for minor in range(254))
"""Numbers of the files of GPUs. Minors 254 and 255 are files for all GPUs together, and give access to
no GPU."""
_CAPS: Final = re.compile(r"^ *(\d+) nvidia-caps$", re.ASCII | re.MULTILINE)
_MIG_CONFIG: Final = re.compile(r"^config (\d+)$", re.ASCII | re.MULTILINE)


class _Nvidia(GpuVendor):
    name = "NVIDIA"
    source = "NVML"
    pci = "0x10de"
    files = "/dev/nvidia"
    unnamed = True
    domain = "nvidia.com"
    common = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
    library = "CUDA_VISIBLE_DEVICES"
    runtime = "NVIDIA_VISIBLE_DEVICES"
    kubelet_name = "uuid"
    must_report = re.compile(r"/dev/nvidia\d+", re.ASCII)

    def read(self, pci: Path = PCI_DEVICES, mig_minors: Path = MIG_MINORS) -> tuple[Device, ...]:
        """Returns the GPUs. In place of a GPU in MIG mode, returns the instances of the GPU."""
        if not self.buses(pci):
            return ()
        from node_agent.machine.vendors import nvml  # noqa: PLC0415 -- see above

        return tuple(replace(device, vendor=self) for device in nvml.read(pci, mig_minors))

    def numbers(
        self, kernel: Path = CHARACTER_DEVICES, mig_minors: Path = MIG_MINORS
    ) -> frozenset[Number]:
        """Returns the numbers of all GPUs, and of the file for MIG's configuration. With this file, a
        program could end the instances of other jobs. Source: NVIDIA MIG User Guide, Device Nodes and
        Capabilities."""
        major, minor = _CAPS.search(text_of(kernel)), _MIG_CONFIG.search(text_of(mig_minors))
        config = {Number(int(major[1]), int(minor[1]))} if major and minor else set[Number]()
        return _GPUS | config

    def watch(self) -> DriverWatch | None:
        if not self.buses():
            return None
        from node_agent.machine.vendors.xid import XidWatch  # noqa: PLC0415 -- see above

        return XidWatch()


NVIDIA: Final = _Nvidia()
