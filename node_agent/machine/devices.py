"""Devices of this machine that Slurm counts individually, and the interface of a vendor of GPUs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from node_agent.machine.sysfs import PCI_DEVICES, gpus_of

ITSELF = -1
"""Value in `Device.links` at the position of the device itself."""


class DriverUnavailable(Exception):
    """A driver is not loaded, or does not answer; the message is the driver's own."""


class Number(NamedTuple):
    """A character device, as the kernel knows it."""

    major: int
    minor: int


class Monitored(NamedTuple):
    """Names of a device in labels of NVIDIA's dcgm-exporter, and in names of job files. A field is "" if
    the device has no such name."""

    gpu: str = ""
    """Number of the GPU by NVML. Slurm numbers the GPUs in an order of its own."""
    uuid: str = ""
    """UUID of the GPU, also for a MIG instance."""
    instance: str = ""
    """Number of a MIG instance by NVML (GPU instance id), or "" for a whole GPU."""

    @property
    def job_file(self) -> str:
        """Returns the name of the file with the jobs of the device, for example "3". For a MIG instance,
        the name is, for example, "3.7"."""
        return f"{self.gpu}.{self.instance}" if self.instance else self.gpu


UNMONITORED: Final = Monitored()


@dataclass(frozen=True, slots=True)
class Device:
    """A device. A MIG instance is also a device, because Slurm allocates both in the same way."""

    name: str
    """Name of the GRES, for example "gpu"."""
    type: str
    """Type of the GRES in the form of Slurm's own detection, for example "nvidia_h100_80gb_hbm3"."""
    files: tuple[str, ...]
    """All files that a program needs, for example "/dev/nvidia0". A MIG instance also has files of
    capabilities."""
    uuid: str = ""
    bus: str = ""
    """Address on the PCI bus in the form of sysfs, for example "0000:19:00.0". A MIG instance has the
    address of its GPU."""
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    """CPUs near the device, in the machine's numbers, or () if all CPUs are equally near."""
    links: tuple[int, ...] = ()
    """Number of links to each device of the machine, with ITSELF at the position of the device itself.
    Without links, the tuple is empty."""
    mig: str = ""
    """Profile of a MIG instance, for example "1g.10gb"."""
    monitored: Monitored = UNMONITORED
    problem: str = ""
    """Reason why no job should use the device, or "" if the device works."""
    absent: bool = False
    """True if the device has no files that a program could open."""
    shared: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Number of parts by the name of the parts' GRES, for example {"shard": 4}."""
    vendor: "GpuVendor | None" = field(default=None, compare=False, repr=False)
    """The vendor, or None if the agent does not know the vendor of the device."""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.uuid, self.bus))) or self.name


Files = frozenset[str]
"""All files of a device. The files identify the device."""


class Names(NamedTuple):
    """Names and health of a device. A name is "" if the device has no such name."""

    uuid: str = ""
    cdi: str = ""
    """Name in CDI, with the kind, for example "nvidia.com/gpu=0"."""
    problem: str = ""
    """The driver's reason why no job should use the device, or ""."""
    kubelet: str = ""
    """Name for the kubelet. The vendor's own plugin uses the same name."""
    monitored: Monitored = UNMONITORED


class Answers(NamedTuple):
    """Replies of all drivers."""

    devices: tuple[Device, ...] = ()
    problems: Mapping[str, str] = {}
    """Reasons why drivers are unavailable, by the name of the vendor."""


class DriverWatch(Protocol):
    """Watches for the complaints of a driver."""

    @property
    def complaints(self) -> Mapping[str, str]:
        """Returns all complaints so far, by the address of the GPU on the PCI bus. If the driver does
        not name the GPU, the key is ""."""

    def wait(self, seconds: float) -> bool:
        """Waits for a complaint, in a thread. Returns True if the agent should read the devices now."""


class GpuVendor(Protocol):
    """A vendor of GPUs. To add a vendor, write a subclass in node_agent/machine/vendors, and register an
    instance in gpu_vendors.VENDORS. Attributes and methods with a default are optional."""

    name: str
    """Name for messages, for example "NVIDIA"."""
    pci: str
    """PCI's number of the vendor, for example "0x10de"."""
    files: str
    """Beginning of the paths of the vendor's device files, for example "/dev/nvidia"."""
    domain: str
    """Domain of the vendor's extended resources, for example "nvidia.com"."""
    source: str = "sysfs"
    """The interface that `read` uses, for messages. An example is "NVML"."""
    unnamed: bool = False
    """True if a file whose path begins with `files` belongs to the vendor even if sysfs names no vendor
    for the file. sysfs names vendors only for files in /dev/dri. So set True for a vendor with files
    elsewhere."""
    common: tuple[str, ...] = ()
    """Files that a program needs in addition to the files of a device."""
    library: str = ""
    """Environment variable that gives the UUIDs of devices to the vendor's libraries."""
    runtime: str = ""
    """Environment variable that gives the UUIDs of devices to the vendor's container runtime."""
    kubelet_name: Literal["uuid", "bus", ""] = ""
    """Field of `Device` with the name that the vendor's own plugin reports to the kubelet, or "" without
    such a name. By this name, programs find the Pod of a device."""
    must_report: re.Pattern[str] | None = None
    """Pattern for the path of a GPU's file. If Slurm counts a GPU with such a file, and `read` does not
    report this GPU, the GPU is broken."""

    def read(self) -> tuple[Device, ...]:
        """Returns the GPUs that the driver reports, in the order of Slurm's own detection. If the driver
        hangs, the call may also hang. Raises DriverUnavailable."""

    def buses(self, pci: Path = PCI_DEVICES) -> list[str]:
        """Returns the PCI addresses of the GPUs that `read` should report."""
        return [place.name for place in gpus_of(self.pci, pci)]

    def numbers(self) -> frozenset[Number]:
        """Returns the numbers of further files to close to all Pods, besides the files of counted GPUs.
        Through these files, a program could use GPUs that the driver makes later, or change all GPUs."""
        return frozenset()

    def watch(self) -> DriverWatch | None:
        """Returns the watch for complaints of the driver, or None if the machine has no such GPU."""
        return None
