"""How drivers and container runtimes call the devices of this machine, which Slurm knows by their files
alone: by UUID, and by name in the specifications of CDI (the Container Device Interface). And how the
devices are."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from node_agent.machine import amd
from node_agent.machine.devices import (
    NVIDIA,
    PCI_DEVICES,
    Device,
    Files,
    Names,
    NvmlUnavailable,
    gpus_of,
    has_nvidia,
)
from service.watched_file import Stamp, stamp
from wellknown.quoting import words_of

CDI_FOLDERS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Where container runtimes look, too."""
_SUFFIXES: Final = (".json", ".yaml")

_UNKNOWN: Final = Device("", "", ())
_NVIDIAS_GPU: Final = re.compile(r"/dev/nvidia\d+", re.ASCII)


class Answers(NamedTuple):
    """What the drivers say."""

    devices: tuple[Device, ...] = ()
    problems: tuple[str, ...] = ()
    """Why one of them says nothing."""


class _Node(BaseModel):
    path: str
    on_host: str = Field("", alias="hostPath")


class _Edits(BaseModel):
    nodes: list[_Node] = Field([], alias="deviceNodes")


class _Named(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)  # `name: 0`

    name: str
    edits: _Edits = Field(_Edits(), alias="containerEdits")


class _Specification(BaseModel):
    kind: str
    devices: list[_Named]


def stamps(folders: Iterable[Path]) -> dict[Path, Stamp]:
    """Returns what changes with CDI's specifications."""
    found: dict[Path, Stamp] = {}
    for file in _specifications(folders):
        with suppress(OSError):  # it goes just now
            found[file] = stamp(file)
    return found


def ask_drivers() -> Answers:
    """Asks all of them. It may take long, and for ever where a driver hangs."""
    problems: tuple[str, ...] = ()
    nvidias: tuple[Device, ...] = ()
    try:
        nvidias = _nvidias()
    except NvmlUnavailable as error:
        problems = (f"NVML: {error}",)
    return Answers((*nvidias, *amd.read()), problems)


def untold(detected: Iterable[Device], pci: Path = PCI_DEVICES) -> list[str]:
    """Returns the GPUs of those vendors whose drivers tell of none of theirs, by their addresses on the
    PCI bus: a driver is not loaded yet, or there is none."""
    told = {device.bus for device in detected}
    found = ([place.name for place in gpus_of(vendor, pci)] for vendor in (NVIDIA, amd.VENDOR))
    return [bus for buses in found if told.isdisjoint(buses) for bus in buses]


def read(
    devices: Sequence[Device],
    folders: Iterable[Path] = CDI_FOLDERS,
    answers: Answers | None = None,
    complaints: Mapping[str, str] = MappingProxyType({}),
) -> tuple[dict[Files, Names], list[str]]:
    """Returns the names of the devices, by all of a device's files, and what could not be read.
    `answers` are those of the drivers, None before their first. `complaints` are what else is wrong with
    a device, by its address on the PCI bus; by "" what is wrong with some GPU of NVIDIA's."""
    problems = [*(answers.problems if answers else ())]
    counted = frozenset(file for device in devices for file in device.files)
    cdi: dict[Files, str] = {}
    for name, files in _by_cdi(folders, problems):
        cdi.setdefault(files & counted, name)  # beside these it may have files that Slurm does not count
    known = {frozenset(device.files): device for device in (answers or Answers()).devices}
    found: dict[Files, Names] = {}
    for files in {frozenset(device.files) for device in devices}:
        device = known.get(files, _UNKNOWN)
        words = _wrong(files, device, answers, complaints)
        found[files] = Names(device.uuid, cdi.get(files, ""), "; ".join(filter(None, words)))
    return found, problems


def _wrong(
    files: Files, device: Device, answers: Answers | None, complaints: Mapping[str, str]
) -> Iterator[str]:
    yield device.problem
    if device.bus:
        yield complaints.get(device.bus, "")
    if any(_NVIDIAS_GPU.fullmatch(file) for file in files):
        yield complaints.get("", "")
        if device is _UNKNOWN and answers is not None:
            yield _not_known(answers, complaints)


def _not_known(answers: Answers, complaints: Mapping[str, str]) -> str:
    """Of a GPU that has fallen off the bus NVML does not tell the files, while the files themselves
    stay: that NVML knows no device of these files is all that is left to go by."""
    told = [*answers.problems, *(each.problem for each in answers.devices if not each.files)]
    buses = {each.bus for each in answers.devices if each.files}
    told += [f"{bus}: {why}" for bus, why in complaints.items() if bus and bus not in buses]
    return "NVML does not know it" + (f" ({'; '.join(told)})" if told else "")


def _nvidias() -> tuple[Device, ...]:
    if not has_nvidia():
        return ()
    from node_agent.machine import nvidia  # noqa: PLC0415 -- see has_nvidia

    return nvidia.read(stays=True)


def _specifications(folders: Iterable[Path]) -> list[Path]:
    return [file for at in folders for file in sorted(at.glob("*")) if file.suffix in _SUFFIXES]


def _by_cdi(folders: Iterable[Path], problems: list[str]) -> Iterator[tuple[str, Files]]:
    for file in _specifications(folders):
        try:
            found = _Specification.model_validate(yaml.safe_load(file.read_text()))
        except ValidationError as error:
            wrong = error.errors()[0]
            problems.append(f"{file}: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}")
        except Exception as error:  # noqa: BLE001 -- others write it: YAML has more errors than its own
            problems.append(f"{file}: {words_of(error)}")
        else:
            for device in found.devices:
                files = frozenset(node.on_host or node.path for node in device.edits.nodes)
                yield f"{found.kind}={device.name}", files
