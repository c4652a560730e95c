"""The devices of this machine that Slurm counts one by one, and the interface of a vendor of GPUs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from node_agent.machine.sysfs import PCI_DEVICES, gpus_of

ITSELF = -1
"""In `Device.links`: the device that the links are of."""


class DriverUnavailable(Exception):
    """A vendor's driver is not loaded, or does not answer; the message is the driver's."""


class Number(NamedTuple):
    """A character device, as the kernel knows it."""

    major: int
    minor: int


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
    vendor: "GpuVendor | None" = field(default=None, compare=False, repr=False)
    """None for a device that is no GPU of a known vendor."""

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


class Answers(NamedTuple):
    """What the drivers say."""

    devices: tuple[Device, ...] = ()
    problems: Mapping[str, str] = {}
    """Reasons why drivers are unavailable, by the name of the vendor."""


class DriverWatch(Protocol):
    """Complaints of a driver."""

    @property
    def complaints(self) -> Mapping[str, str]:
        """Returns all complaints until now, by the address of the GPU on the PCI bus; by "" if the
        driver does not name the GPU."""

    def wait(self, seconds: float) -> bool:
        """Waits for a complaint, in a thread. Returns True if the agent should read the devices now."""


class GpuVendor(Protocol):
    """A vendor of GPUs. To add a vendor, write a subclass in node_agent/machine/vendors, and register an
    instance in gpu_vendors.VENDORS. What has a default is optional."""

    name: str
    """For messages: "NVIDIA"."""
    source: str
    """The interface that `read` uses, for messages: "NVML"."""
    pci: str
    """PCI's number of the vendor: "0x10de"."""
    files: str
    """First characters of the files of the vendor's devices: "/dev/nvidia"."""
    unnamed: bool = False
    """True if the vendor also owns such files for which sysfs names no vendor."""
    domain: str
    """Domain of the vendor's extended resources: "nvidia.com"."""
    common: tuple[str, ...] = ()
    """Files that a program needs beside the files of a device."""
    numbers: frozenset[Number] = frozenset()
    """Numbers of all files of GPUs that the driver may make later."""
    library: str = ""
    """Environment variable with the UUIDs of devices for the vendor's libraries."""
    runtime: str = ""
    """Environment variable with the UUIDs of devices for the vendor's container runtime."""
    must_report: re.Pattern[str] | None = None
    """Files of GPUs that are broken if `read` does not report a device with these files."""

    def read(self) -> tuple[Device, ...]:
        """Returns the GPUs that the driver reports, in the order of Slurm's own detection. May hang if
        the driver hangs. Raises DriverUnavailable."""

    def buses(self, pci: Path = PCI_DEVICES) -> list[str]:
        """Returns the addresses on the PCI bus of the GPUs that `read` should report."""
        return [place.name for place in gpus_of(self.pci, pci)]

    def watch(self) -> DriverWatch | None:
        """Returns the complaints of the driver, or None without such a GPU."""
        return None
