"""The devices of the machine, with the kernel's numbers of the device files."""

import os
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from node_agent.machine import graphics
from node_agent.machine.devices import Device, Number
from node_agent.machine.gpu_vendors import with_vendor

_COMMON: Final = {1: "memory", 5: "terminals"}
"""Major numbers of devices that every program needs. A mistake in gres.conf must not close these
devices."""


class Part(NamedTuple):
    """A job's share of a device, with the kernel's numbers of the files. MIG instances on a GPU share
    the numbers of the GPU. Field `own` has the numbers that no other device has."""

    device: Device
    numbers: frozenset[Number] = frozenset()
    own: frozenset[Number] = frozenset()
    problem: str = ""
    """Reason why no job can use the device."""
    in_part: bool = False
    """True if other jobs may have other parts of the device."""


class Unit(NamedTuple):
    """A device, or a part of a device, as the kubelet counts it."""

    name: str
    """Name of the GRES."""
    number: int
    """Slurm's number of the device."""
    part: Part
    share: int | None = None
    """Number of the part in the device, or None for a whole device."""

    @property
    def plain(self) -> str:
        """Returns the name from Slurm's numbers, without the driver's name of the device. Examples are
        "gpu-0" and "shard-0-3"."""
        whole = f"{self.name}-{self.number}"
        return whole if self.share is None else f"{whole}-{self.share}"

    def named(self, device: str) -> str:
        """Returns the name with the driver's name of the device. Examples are "GPU-4c2f" and
        "GPU-4c2f::3"."""
        return device if self.share is None else f"{device}::{self.share}"


Look = Callable[[Device], tuple[frozenset[Number], str]]
"""Returns the numbers of a device's files, or the reason why no job can use the device."""


class Machine:
    """All devices that Slurm counts on this machine."""

    def __init__(
        self, devices: Sequence[Device], look: Look | None = None, nodes: Path = graphics.NODES
    ) -> None:
        """Reads the numbers of the devices' files. Parameter `nodes` is sysfs's folder for the files in
        /dev/dri. Raises ValueError if two devices have the same files, or if a file belongs to a device
        that every program needs."""
        self.devices = tuple(with_vendor(device, nodes) for device in devices)
        found = [(device, *(look or _look)(device)) for device in self.devices]
        times = Counter(number for _, numbers, _ in found for number in numbers)
        self.by_name: defaultdict[str, list[Part]] = defaultdict(list)
        """The devices of each name, in Slurm's order."""
        self._shared: defaultdict[str, list[Part]] = defaultdict(list)
        for device, numbers, problem in found:
            own = frozenset(number for number in numbers if times[number] == 1)
            if numbers and not own:
                raise ValueError(f"{device} has no file of its own: {', '.join(device.files)}")
            part = Part(device, numbers, own, problem)
            self.by_name[device.name].append(part)
            for name in device.shared:
                self._shared[name].append(part._replace(in_part=True))
        self.guarded = frozenset(times) | _of_vendors(self.devices) | _graphics(times, nodes)
        """Numbers of files that a Pod may open only with the right job. The set also has GPUs that Slurm
        does not count, and further files of counted GPUs."""

    @property
    def problems(self) -> dict[str, str]:
        """Returns the problems of devices by Slurm's numbers, for example "gpu 3"."""
        return {of: part.problem for of, part in self.numbered.items() if part.problem}

    @property
    def numbered(self) -> dict[str, Part]:
        """Returns all devices by Slurm's numbers, for example "gpu 3"."""
        return {f"{name} {n}": part for name, of in self.by_name.items() for n, part in enumerate(of)}

    def units(self, name: str) -> Iterator[Unit]:
        """Yields each unit of a GRES."""
        for number, part in enumerate(self.by_name.get(name, ())):
            yield Unit(name, number, part)
        for number, part in enumerate(self._shared.get(name, ())):
            for share in range(part.device.shared[name]):
                yield Unit(name, number, part, share)

    def parts(self, wanted: Mapping[str, Sequence[int]]) -> list[Part]:
        """Returns the devices of a job, each device once. Parameter `wanted` has Slurm's numbers of the
        devices, by the name of the GRES. Raises ValueError if a device is missing, because only a part
        of the devices may be worse than no device."""
        found: list[Part] = []
        for name, numbers in wanted.items():
            here = self.by_name.get(name) or self._shared.get(name, [])
            if here and not numbers:
                raise ValueError(f"Slurm does not say which {name} it has")
            for number in numbers:
                if number >= len(here):
                    raise ValueError(f"Slurm gave it {name} {number}, and this machine has {len(here)}")
                if here[number].problem:
                    raise ValueError(f"{name} {number}: {here[number].problem}")
                if here[number] not in found:
                    found.append(here[number])
        return found


def _look(device: Device) -> tuple[frozenset[Number], str]:
    found = set[Number]()
    for file in device.files:
        try:
            status = Path(file).stat()
        except OSError as error:
            return frozenset(), f"{file}: {error.strerror}"
        if not stat.S_ISCHR(status.st_mode):
            return frozenset(), f"{file} is no character device"
        number = Number(os.major(status.st_rdev), os.minor(status.st_rdev))
        if number.major in _COMMON:
            raise ValueError(
                f"{file} is one of the devices for {_COMMON[number.major]}: every program needs it"
            )
        found.add(number)
    return frozenset(found), ""


def _of_vendors(devices: Sequence[Device]) -> frozenset[Number]:
    """Returns the numbers of further files of the vendors' drivers."""
    vendors = {device.vendor for device in devices if device.vendor is not None}
    return frozenset(number for vendor in vendors for number in vendor.numbers())


def _graphics(counted: Iterable[Number], nodes: Path) -> frozenset[Number]:
    minors = {number.minor for number in counted if number.major == graphics.MAJOR}
    return frozenset(Number(graphics.MAJOR, minor) for minor in graphics.siblings(minors, nodes))
