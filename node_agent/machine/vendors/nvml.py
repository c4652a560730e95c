"""Reads NVIDIA's GPUs from NVML (NVIDIA's own library), in the order of their addresses on the PCI bus.

Order, types and files are the same as in Slurm's own detection (AutoDetect=nvml: gpu_nvml.c).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pynvml

from node_agent.machine.devices import ITSELF, Device, DriverUnavailable, Monitored
from node_agent.machine.sysfs import MIG_MINORS, near

_Value = TypeVar("_Value")
_Minors = Mapping[tuple[int, int, int | None], int]
_MIG_MINOR: Final = re.compile(r"gpu(\d+)/gi(\d+)(?:/ci(\d+))?/access (\d+)", re.ASCII)

_HALF_DEAD: Final = (pynvml.NVMLError, ValueError)
"""Errors of calls about a failed GPU: NVML's own errors, and replies that are neither numbers nor text
(UnicodeDecodeError is a ValueError)."""


@contextmanager
def nvml() -> Iterator[None]:
    """Opens NVML with the GPUs that the driver has now. NVML stays initialised afterwards, because
    initialising NVML again can wake every GPU. Raises DriverUnavailable, also if a call of NVML in the
    `with` block fails."""
    try:
        pynvml.nvmlInit()
        _stay()
        try:
            yield
        finally:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise DriverUnavailable(str(error)) from error


@cache
def _stay() -> None:
    pynvml.nvmlInit()


def bus_of(gpu: Any) -> str:
    """Returns the address of a GPU on the PCI bus. Raises NVMLError and ValueError."""
    return _bus(pynvml.nvmlDeviceGetPciInfo(gpu))


def read(pci: Path, mig_minors: Path) -> tuple[Device, ...]:
    """Returns the GPUs. In place of a GPU in MIG mode, returns the instances of the GPU. Raises
    DriverUnavailable."""
    with nvml():
        gpus = [_Gpu.find(number) for number in range(pynvml.nvmlDeviceGetCount())]
        minors = _minors(mig_minors)
        return tuple(device for gpu in gpus for device in gpu.devices(gpus, pci, minors))


class _Gpu(NamedTuple):
    """A GPU in NVML. After a GPU has fallen off the bus, possibly only the number is known."""

    number: int
    """NVML's number of the GPU."""
    handle: Any
    bus: str
    lost: str

    @classmethod
    def find(cls, number: int) -> "_Gpu":
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            return cls(number, handle, bus_of(handle), "")
        except _HALF_DEAD as error:
            return cls(number, None, "", str(error))

    def devices(self, gpus: Sequence["_Gpu"], pci: Path, minors: _Minors) -> tuple[Device, ...]:
        """Returns the GPU or its instances. A failed GPU does not affect the other GPUs."""
        words = f"GPU {self.number} of NVML: {self.lost}"
        if not self.lost:
            try:
                return tuple(self._devices(gpus, pci, minors))
            except _HALF_DEAD as error:
                words = f"NVML: {error}"
        return (Device("gpu", "", (), bus=self.bus, problem=words, absent=True),)

    def _devices(self, gpus: Sequence["_Gpu"], pci: Path, minors: _Minors) -> Iterator[Device]:
        whole = self._whole(gpus, pci)
        if not self._in_mig_mode():
            yield whole
        elif instances := tuple(self._instances(whole, minors)):
            yield from instances
        else:
            yield replace(whole, problem="it is in MIG mode, and has no instances", absent=True)

    def _whole(self, gpus: Sequence["_Gpu"], pci: Path) -> Device:
        numa_node, cpus = near(self.bus, pci)
        uuid = pynvml.nvmlDeviceGetUUID(self.handle)
        return Device(
            "gpu",
            _type(pynvml.nvmlDeviceGetName(self.handle)),
            (f"/dev/nvidia{pynvml.nvmlDeviceGetMinorNumber(self.handle)}",),
            uuid=uuid,
            bus=self.bus,
            numa_node=numa_node,
            cpus=cpus,
            links=self._links([gpu.bus for gpu in gpus]),
            monitored=Monitored(str(self.number), uuid),
            problem="; ".join(_problems(self.handle)),
        )

    def _links(self, buses: Sequence[str]) -> tuple[int, ...]:
        """Returns the number of NVLinks to each GPU. A link to a switch does not count."""
        links = [ITSELF if index == self.number else 0 for index in range(len(buses))]
        for lane in range(pynvml.NVML_NVLINK_MAX_LINKS):
            if _reply(False, pynvml.nvmlDeviceGetNvLinkState, self.handle, lane):
                far = _reply(None, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, self.handle, lane)
                bus = "" if far is None else _bus(far)
                if bus in buses and bus != self.bus:
                    links[buses.index(bus)] += 1
        return tuple(links)

    def _in_mig_mode(self) -> bool:
        current, _ = _reply((0, 0), pynvml.nvmlDeviceGetMigMode, self.handle)
        return bool(current)

    def _instances(self, whole: Device, minors: _Minors) -> Iterator[Device]:
        for index in range(_reply(0, pynvml.nvmlDeviceGetMaxMigDeviceCount, self.handle)):
            mig = _reply(None, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, self.handle, index)
            if mig is not None:
                yield _instance(mig, whole, minors)


def _instance(mig: Any, whole: Device, minors: _Minors) -> Device:
    gpu = int(whole.files[0].removeprefix("/dev/nvidia"))
    part = pynvml.nvmlDeviceGetGpuInstanceId(mig)
    compute = pynvml.nvmlDeviceGetComputeInstanceId(mig)
    caps = [minors.get(key) for key in ((gpu, part, None), (gpu, part, compute))]
    files = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in caps if number is not None]
    _, _, profile = _type(pynvml.nvmlDeviceGetName(mig)).rpartition("mig_")
    return Device(
        whole.name,
        f"{whole.type.partition('-')[0]}_{profile}",
        (*whole.files, *files),
        uuid=pynvml.nvmlDeviceGetUUID(mig),
        bus=whole.bus,
        numa_node=whole.numa_node,
        cpus=whole.cpus,
        mig=profile,
        monitored=whole.monitored._replace(instance=str(part)),
        problem=whole.problem if None not in caps else f"{MIG_MINORS} does not name its files",
        absent=None in caps,
    )


def _problems(gpu: Any) -> Iterator[str]:
    """Yields reasons why work on a GPU would fail. If the driver has repaired an error (remapped ECC
    errors), this is not a problem."""
    remapped = _reply(None, pynvml.nvmlDeviceGetRemappedRows, gpu)
    if remapped is not None:
        _, _, pending, failed = remapped
        if failed:
            yield "a row of its memory cannot be remapped: replace the GPU"
        elif pending:
            yield "a row of its memory is remapped at the next reset"
    if _reply(0, pynvml.nvmlDeviceGetRetiredPagesPendingStatus, gpu):
        yield "a page of its memory is retired at the next reset"


def _minors(file: Path) -> dict[tuple[int, int, int | None], int]:
    try:
        lines = file.read_text().splitlines()
    except OSError:  # no GPU of this driver can be in MIG mode
        return {}
    found = filter(None, map(_MIG_MINOR.fullmatch, lines))
    return {(int(f[1]), int(f[2]), None if f[3] is None else int(f[3])): int(f[4]) for f in found}


def _bus(info: Any) -> str:
    """Returns the address in the form of sysfs. NVML writes a domain with eight digits, and sysfs writes
    four digits."""
    text = info.busId if isinstance(info.busId, str) else info.busId.decode()
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _type(name: str) -> str:
    """Returns the type of the GRES for NVML's name of a GPU, as in Slurm's detection
    (gpu_common_underscorify_tolower)."""
    return name.lower().replace(" ", "_")


def _reply(otherwise: _Value, ask: Callable[..., _Value], *of: object) -> _Value:
    """Returns NVML's reply, or `otherwise` if the GPU or the driver has no such data."""
    try:
        return ask(*of)
    except pynvml.NVMLError:
        return otherwise
