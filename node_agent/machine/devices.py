"""The devices of this machine that Slurm counts one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from node_agent.machine.cpus import Cpus
from wellknown import number_list

PCI_DEVICES = Path("/sys/bus/pci/devices")
_CLASSES = ("0x03", "0x12")
"""PCI's classes of display controllers, and of accelerators."""
NVIDIA = "0x10de"
"""PCI's number of the vendor."""
ITSELF = -1
"""In `Device.links`: the device that the links are of."""


class NvmlUnavailable(Exception):
    """There is no NVML, or no driver that it works with, or it does not say what it must; the message is
    NVML's."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device, or a part of one that Slurm gives away by itself (a MIG instance)."""

    name: str
    """Of the GRES: "gpu"."""
    type: str
    """As Slurm's own detection has it: "nvidia_h100_80gb_hbm3"."""
    files: tuple[str, ...]
    """Who has it needs all of these: "/dev/nvidia0"; a MIG instance has files of capabilities, too."""
    uuid: str = ""
    bus: str = ""
    """The address on the PCI bus, as sysfs has it: "0000:19:00.0"; of a MIG instance its GPU's."""
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    """The CPUs that are near to it, by the machine's numbers; () where all are as far."""
    links: tuple[int, ...] = ()
    """How many links it has to each device of the machine, ITSELF in its own place; () of none."""
    mig: str = ""
    """The profile of a MIG instance: "1g.10gb"."""
    problem: str = ""
    """Why nobody should have it; empty of one that works."""
    absent: bool = False
    """It has no files that could be opened."""
    shared: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Into how many parts Slurm counts it, by the name of the GRES that these are: {"shard": 4}."""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.uuid, self.bus))) or self.name


Files = frozenset[str]
"""All files of a device: by these it is known here, whoever tells of it."""


class Names(NamedTuple):
    """Each is empty where the device has none."""

    uuid: str = ""
    cdi: str = ""
    """With its kind: "nvidia.com/gpu=0"."""
    problem: str = ""
    """Why the driver says that nobody should have it."""


def gres_conf(devices: Sequence[Device], cpus: Cpus) -> str:
    """Returns the lines of gres.conf(5) for these devices: Slurm numbers those of a name in the order of
    their lines."""
    return "".join(f"{_line(device, cpus)}\n" for device in devices)


def _line(device: Device, cpus: Cpus) -> str:
    fields = {"Name": device.name, "Type": device.type}
    fields["File" if len(device.files) == 1 else "MultipleFiles"] = ",".join(device.files)
    if device.cpus:
        fields["Cores"] = number_list.compress(cpus.cores_of(device.cpus))
    if device.links:
        fields["Links"] = ",".join(map(str, device.links))
    return " ".join(f"{key}={value}" for key, value in fields.items() if value)


def gpus_of(vendor: str, pci: Path = PCI_DEVICES) -> list[Path]:
    """Returns the GPUs of a vendor (PCI's number of it, "0x10de") that are on the bus, by address."""
    return [
        place
        for place in sorted(pci.glob("*"))
        if told(place / "vendor") == vendor and told(place / "class").startswith(_CLASSES)
    ]


def has_nvidia(pci: Path = PCI_DEVICES) -> bool:
    """Tells whether there is a GPU of NVIDIA's on the bus: only then is there need of NVML, which takes
    16 MB of memory in Python."""
    return bool(gpus_of(NVIDIA, pci))


def with_files(device: Device) -> Device:
    """Returns the device as absent where one of its files is not there."""
    missing = [file for file in device.files if not Path(file).is_char_device()]
    if device.absent or not missing:
        return device
    return replace(device, problem=f"{', '.join(missing)}: no such device", absent=True)


def told(file: Path) -> str:
    """Returns what a file of sysfs says, "" where it is not there."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def near(bus: str, pci: Path = PCI_DEVICES) -> tuple[int | None, tuple[int, ...]]:
    """Returns the NUMA node of a PCI device and the CPUs near to it: (None, ()) where the machine does
    not tell."""
    try:
        node = int((pci / bus / "numa_node").read_text())
        cpus = number_list.expand((pci / bus / "local_cpulist").read_text().strip())
    except (OSError, ValueError):
        return None, ()
    return (None if node < 0 else node), cpus
