"""Devices of this machine that Slurm counts individually, and the interface of a vendor of GPUs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from node_agent.machine.sysfs import PCI_DEVICES, gpus_of

ITSELF = -1
"""Value in `Device.links` in the place of the device itself."""


class DriverUnavailable(Exception):
    """A driver is not loaded, or does not answer; the message is the driver's own."""


class Number(NamedTuple):
    """A character device, as the kernel knows it."""

    major: int
    minor: int


class Monitored(NamedTuple):
    """Names of a device in labels of NVIDIA's dcgm-exporter, and in names of job files;
    "" without such a name."""

    gpu: str = ""
    """Number of the GPU by NVML. Slurm numbers the GPUs in an order of its own."""
    uuid: str = ""
    """UUID of the GPU, also for a MIG instance."""
    instance: str = ""
    """Number of a MIG instance by NVML (GPU instance id), "" for a whole GPU."""

    @property
    def job_file(self) -> str:
        """Returns the name of the file with the jobs of the device: "3", "3.7" for a MIG instance."""
        return f"{self.gpu}.{self.instance}" if self.instance else self.gpu


UNMONITORED: Final = Monitored()


@dataclass(frozen=True, slots=True)
class Device:
    """A device, or a MIG instance, which Slurm allocates like a device."""

    name: str
    """Name of the GRES: "gpu"."""
    type: str
    """Type of the GRES in the form of Slurm's own detection: "nvidia_h100_80gb_hbm3"."""
    files: tuple[str, ...]
    """All files that a program needs: "/dev/nvidia0"; a MIG instance also has files of capabilities."""
    uuid: str = ""
    bus: str = ""
    """Address on the PCI bus in the form of sysfs: "0000:19:00.0"; a MIG instance has the GPU's
    address."""
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    """CPUs near the device, in the machine's numbers; () if all CPUs are equally near."""
    links: tuple[int, ...] = ()
    """Number of links to each device of the machine, with ITSELF in the device's own place; () without
    links."""
    mig: str = ""
    """Profile of a MIG instance: "1g.10gb"."""
    monitored: Monitored = UNMONITORED
    problem: str = ""
    """Reason why no job should use the device, "" for a working device."""
    absent: bool = False
    """True if the device has no files that a program could open."""
    shared: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Number of parts by the name of their GRES: {"shard": 4}."""
    vendor: "GpuVendor | None" = field(default=None, compare=False, repr=False)
    """None for a device of no known vendor."""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.uuid, self.bus))) or self.name


Files = frozenset[str]
"""All files of a device, which identify the device."""


class Names(NamedTuple):
    """Names and health of a device; "" without such a name."""

    uuid: str = ""
    cdi: str = ""
    """Name in CDI, with the kind: "nvidia.com/gpu=0"."""
    problem: str = ""
    """Reason of the driver why no job should use the device."""
    kubelet: str = ""
    """Name for the kubelet, the same as of the vendor's own plugin."""
    monitored: Monitored = UNMONITORED


class Answers(NamedTuple):
    """Replies of all drivers."""

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
    instance in gpu_vendors.VENDORS. Attributes and methods with a default are optional."""

    name: str
    """For messages: "NVIDIA"."""
    pci: str
    """PCI's number of the vendor: "0x10de"."""
    files: str
    """First characters of the files of the vendor's devices: "/dev/nvidia"."""
    domain: str
    """Domain of the vendor's extended resources: "nvidia.com"."""
    source: str = "sysfs"
    """The interface that `read` uses, for messages: "NVML"."""
    unnamed: bool = False
    """True if the vendor also owns files of this beginning without a vendor in sysfs. sysfs names
    vendors of files in /dev/dri alone: set True for a vendor with files elsewhere."""
    common: tuple[str, ...] = ()
    """Files that a program needs beside the files of a device."""
    library: str = ""
    """Environment variable with the UUIDs of devices for the vendor's libraries."""
    runtime: str = ""
    """Environment variable with the UUIDs of devices for the vendor's container runtime."""
    kubelet_name: Literal["uuid", "bus", ""] = ""
    """Field of a device with the name that the vendor's own plugin reports to the kubelet, ""
    without such a name: programs find the Pod of a device by the name."""
    must_report: re.Pattern[str] | None = None
    """Pattern of a GPU's file. A GPU that Slurm counts is broken if `read` does not report the GPU."""

    def read(self) -> tuple[Device, ...]:
        """Returns the GPUs that the driver reports, in the order of Slurm's own detection. May hang if
        the driver hangs. Raises DriverUnavailable."""

    def buses(self, pci: Path = PCI_DEVICES) -> list[str]:
        """Returns the addresses on the PCI bus of the GPUs that `read` should report."""
        return [place.name for place in gpus_of(self.pci, pci)]

    def numbers(self) -> frozenset[Number]:
        """Returns the numbers of files to close to all Pods besides the files of counted GPUs: files of
        GPUs that the driver may make later, and files that change all GPUs."""
        return frozenset()

    def watch(self) -> DriverWatch | None:
        """Returns the complaints of the driver, or None without such a GPU."""
        return None
