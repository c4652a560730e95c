"""Devices on the PCI bus, as sysfs describes them."""

from pathlib import Path

from wellknown import number_list

PCI_DEVICES = Path("/sys/bus/pci/devices")
_CLASSES = ("0x03", "0x12")
"""PCI's classes of display controllers, and of accelerators."""
MIG_MINORS = Path("/proc/driver/nvidia-caps/mig-minors")
"""File with the numbers of the files in /dev/nvidia-caps. A line is, for example, "gpu0/gi1/ci0/access
13"."""

CHARACTER_DEVICES = Path("/proc/devices")
"""File with the major numbers of the kernel's drivers. A line is, for example, "235 nvidia-caps"."""


def gpus_of(vendor: str, pci: Path = PCI_DEVICES) -> list[Path]:
    """Returns the folders of a vendor's GPUs in the order of their addresses. Parameter `vendor` is
    PCI's number of the vendor, for example "0x10de"."""
    return [
        place
        for place in sorted(pci.glob("*"))
        if text_of(place / "vendor") == vendor and text_of(place / "class").startswith(_CLASSES)
    ]


def text_of(file: Path) -> str:
    """Returns the text of a file of sysfs, or "" if the file is missing."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def near(bus: str, pci: Path = PCI_DEVICES) -> tuple[int | None, tuple[int, ...]]:
    """Returns the NUMA node of a PCI device, and the CPUs near the device. If sysfs has no such data,
    returns (None, ())."""
    try:
        node = int((pci / bus / "numa_node").read_text())
        cpus = number_list.expand((pci / bus / "local_cpulist").read_text().strip())
    except (OSError, ValueError):
        return None, ()
    return (None if node < 0 else node), cpus
