"""Finds names and health of the devices that Slurm knows only by files. UUIDs and health come from the
drivers. Other names come from the specifications of CDI (the Container Device Interface)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from node_agent.machine.devices import Answers, Device, DriverUnavailable, Files, GpuVendor, Names
from node_agent.machine.gpu_vendors import VENDORS
from node_agent.machine.sysfs import PCI_DEVICES
from service.watched_file import Stamp, stamp
from wellknown.quoting import words_of

CDI_FOLDERS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Default folders of container runtimes for CDI."""
_SUFFIXES: Final = (".json", ".yaml")


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
    """Returns a stamp of each specification of CDI. The stamp changes when the file changes."""
    found: dict[Path, Stamp] = {}
    for file in _specifications(folders):
        with suppress(OSError):  # the file was removed just now
            found[file] = stamp(file)
    return found


def ask_drivers() -> Answers:
    """Asks the drivers of all vendors for their devices. The call may take long. If a driver hangs, the
    call hangs, too."""
    devices: list[Device] = []
    problems: dict[str, str] = {}
    for vendor in VENDORS:
        try:
            devices += vendor.read()
        except DriverUnavailable as error:
            problems[vendor.name] = f"{vendor.source}: {error}"
    return Answers(tuple(devices), problems)


def without_driver(detected: Iterable[Device], pci: Path = PCI_DEVICES) -> list[str]:
    """Returns the PCI addresses of GPUs without a driver. A vendor's GPUs have no driver if no GPU of
    the vendor is in `detected`."""
    known = {device.bus for device in detected}
    found = (vendor.buses(pci) for vendor in VENDORS)
    return [bus for buses in found if known.isdisjoint(buses) for bus in buses]


def read(
    devices: Sequence[Device],
    folders: Iterable[Path] = CDI_FOLDERS,
    answers: Answers | None = None,
    complaints: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> tuple[dict[Files, Names], list[str]]:
    """Returns the names of each device, by the set of the device's files, and the problems of reading.
    Parameter `answers` is None before the drivers' first reply. Parameter `complaints` has the
    complaints of each driver (DriverWatch), by the name of the vendor."""
    problems = [*(answers.problems.values() if answers else ())]
    counted = frozenset(file for device in devices for file in device.files)
    cdi: dict[Files, str] = {}
    for name, files in _by_cdi(folders, problems):
        cdi.setdefault(files & counted, name)  # a specification may have more files than Slurm counts
    known = {frozenset(device.files): device for device in (answers or Answers()).devices}
    found: dict[Files, Names] = {}
    for device in devices:
        files = frozenset(device.files)
        reported = known.get(files)
        words = _wrong(device, reported, answers, complaints)
        names = Names(cdi=cdi.get(files, ""), problem="; ".join(filter(None, words)))
        if reported is not None:
            kubelet = _for_kubelet(device, reported)
            names = names._replace(uuid=reported.uuid, kubelet=kubelet, monitored=reported.monitored)
        found[files] = names
    return found, problems


def _for_kubelet(counted: Device, known: Device) -> str:
    field = counted.vendor.kubelet_name if counted.vendor else ""
    return str(getattr(known, field)) if field else ""


def _wrong(
    counted: Device,
    known: Device | None,
    answers: Answers | None,
    complaints: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """Yields the problems of a device. Parameter `known` is the same device in the driver's report, or
    None."""
    vendor = counted.vendor
    own = complaints.get(vendor.name, {}) if vendor else {}
    if known is not None:
        yield known.problem
        yield own.get(known.bus, "") if known.bus else ""
    if vendor and vendor.must_report and any(map(vendor.must_report.fullmatch, counted.files)):
        yield own.get("", "")
        if known is None and answers is not None:
            yield _not_reported(vendor, answers, own)


def _not_reported(vendor: GpuVendor, answers: Answers, complaints: Mapping[str, str]) -> str:
    """Returns the problem of a GPU that the driver does not report, with the possible reasons. After a
    GPU has fallen off the bus, its files remain, and NVML reports the GPU without files."""
    own = [device for device in answers.devices if device.vendor is vendor]
    reasons = [*filter(None, [answers.problems.get(vendor.name)])]
    reasons += [each.problem for each in own if not each.files]
    buses = {each.bus for each in own if each.files}
    reasons += [f"{bus}: {why}" for bus, why in complaints.items() if bus and bus not in buses]
    return f"{vendor.source} does not know it" + (f" ({'; '.join(reasons)})" if reasons else "")


def _specifications(folders: Iterable[Path]) -> list[Path]:
    return [file for at in folders for file in sorted(at.glob("*")) if file.suffix in _SUFFIXES]


def _by_cdi(folders: Iterable[Path], problems: list[str]) -> Iterator[tuple[str, Files]]:
    for file in _specifications(folders):
        try:
            found = _Specification.model_validate(yaml.safe_load(file.read_text()))
        except ValidationError as error:
            wrong = error.errors()[0]
            problems.append(f"{file}: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}")
        except Exception as error:  # noqa: BLE001 -- other programs write the file
            problems.append(f"{file}: {words_of(error)}")
        else:
            for device in found.devices:
                files = frozenset(node.on_host or node.path for node in device.edits.nodes)
                yield f"{found.kind}={device.name}", files
