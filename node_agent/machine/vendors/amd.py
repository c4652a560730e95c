"""Reads AMD's GPUs from sysfs. The GPUs are in the order of their addresses on the PCI bus, as in
Slurm's own detection (AutoDetect=rsmi: gpu_rsmi.c)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from node_agent.machine.devices import ITSELF, Device, GpuVendor
from node_agent.machine.sysfs import PCI_DEVICES, gpus_of, near, text_of

_UNCORRECTABLE: Final = re.compile(r"^ue: (\d+)$", re.MULTILINE | re.ASCII)
_UNNAMED: Final = "amd_gpu"


class _Amd(GpuVendor):
    name = "AMD"
    pci = "0x1002"
    files = "/dev/dri/renderD"
    unnamed = True
    """A part of an AMD GPU (amdgpu_xcp) is on no bus, so sysfs names no vendor."""
    domain = "amd.com"
    common = ("/dev/kfd",)
    library = "ROCR_VISIBLE_DEVICES"
    kubelet_name = "bus"

    def read(self, pci: Path = PCI_DEVICES) -> tuple[Device, ...]:
        """Returns the GPUs that the driver amdgpu has. Without the driver, returns no GPU."""
        found = [place for place in gpus_of(self.pci, pci) if any(place.glob("drm/renderD*"))]
        return tuple(self._device(place, index, len(found)) for index, place in enumerate(found))

    def _device(self, place: Path, index: int, count: int) -> Device:
        numa_node, cpus = near(place.name, place.parent)
        unique = text_of(place / "unique_id")
        return Device(
            "gpu",
            text_of(place / "product_name").lower().replace(" ", "_") or _UNNAMED,
            tuple(f"/dev/dri/{file.name}" for file in sorted(place.glob("drm/renderD*"))),
            uuid=f"GPU-{unique}" if unique else "",
            bus=place.name,
            numa_node=numa_node,
            cpus=cpus,
            links=tuple(ITSELF if each == index else 0 for each in range(count)),
            problem="; ".join(_problems(place)),
            vendor=self,
        )


def _problems(place: Path) -> Iterator[str]:
    errors = _UNCORRECTABLE.search(text_of(place / "ras" / "umc_err_count"))
    if errors and int(errors[1]):
        yield f"{errors[1]} errors of its memory could not be corrected"


AMD: Final = _Amd()
