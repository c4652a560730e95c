"""Intel's GPUs. The agent knows these GPUs only from slurmd's list. The agent itself detects no GPU of
Intel, because most of Intel's GPUs are parts of processors. Intel's libraries use all GPUs with files in
the container."""

from pathlib import Path
from typing import Final

from node_agent.machine.devices import Device, GpuVendor
from node_agent.machine.sysfs import PCI_DEVICES


class _Intel(GpuVendor):
    name = "Intel"
    pci = "0x8086"
    files = "/dev/dri/"
    domain = "gpu.intel.com"

    def read(self) -> tuple[Device, ...]:
        return ()

    def buses(self, pci: Path = PCI_DEVICES) -> list[str]:  # noqa: ARG002
        return []


INTEL: Final = _Intel()
