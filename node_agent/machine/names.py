"""How drivers and container runtimes call the devices of this machine, which Slurm knows by their files
alone: by UUID, and by name in the specifications of CDI (the Container Device Interface). And how the
devices are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from node_agent.machine import amd
from node_agent.machine.devices import Device, Files, Names, NvmlUnavailable, has_nvidia
from service.watched_file import Stamp, stamp

CDI_FOLDERS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Where container runtimes look, too."""
_SUFFIXES: Final = (".json", ".yaml")

_UNKNOWN: Final = Device("", "", ())


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


def read(
    devices: Sequence[Device],
    folders: Iterable[Path] = CDI_FOLDERS,
    complaints: Mapping[str, str] = MappingProxyType({}),
) -> tuple[dict[Files, Names], list[str]]:
    """Returns the names of the devices, by all of a device's files, and what could not be read.
    `complaints` are what else is wrong with a device, by its address on the PCI bus."""
    problems: list[str] = []
    counted = frozenset(file for device in devices for file in device.files)
    cdi: dict[Files, str] = {}
    for name, files in _by_cdi(folders, problems):
        cdi.setdefault(files & counted, name)  # beside these it may have files that Slurm does not count
    known: dict[Files, Device] = {}
    try:
        known = {frozenset(device.files): device for device in (*_nvidias(), *amd.read())}
    except NvmlUnavailable as error:
        problems.append(f"NVML: {error}")
    found: dict[Files, Names] = {}
    for files in {frozenset(device.files) for device in devices}:
        device = known.get(files, _UNKNOWN)
        words = filter(None, (device.problem, complaints.get(device.bus)))
        found[files] = Names(device.uuid, cdi.get(files, ""), "; ".join(words))
    return found, problems


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
        except (OSError, ValueError, yaml.YAMLError) as error:
            problems.append(f"{file}: {error}")
        else:
            for device in found.devices:
                files = frozenset(node.on_host or node.path for node in device.edits.nodes)
                yield f"{found.kind}={device.name}", files
