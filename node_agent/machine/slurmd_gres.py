"""The devices of this machine by Slurm's own numbers, from the output of `slurmd -G`.

gres.conf alone does not determine the numbers. slurmd sorts the lines by the types in slurm.conf, or by
links after its own detection of GPUs, and omits devices that slurm.conf does not count (gres.c,
gres_gpu.c). The output has the order of the numbers: a line for each device, or for several files in a
row. The field Index is another number.

Parts of GPUs (shard, mps) have a line for each GPU, with the number of parts, possibly 0, in the order
of the GPUs' own lines (gres_c_s.c: _merge_lists). So a part has the number of its GPU.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from node_agent.machine.devices import Device
from slurm_client import hostlist

_LINE: Final = re.compile(r"\bGres (Name=.*)")
_FIELD: Final = re.compile(r"(\w+)=(\S+)", re.ASCII)
_FAILED: Final = re.compile(r"\b(?:fatal: |error: .*initialization failed).*")
"""Fatal messages. slurmd's other errors may be harmless: for example, other cores than in slurm.conf."""
_RELEASE: Final = re.compile(r"^slurm\S* (\d+)\.(\d+)\.", re.MULTILINE)
"""Output of `slurmd -V`: "slurm 26.05.1", or "slurm-wlm 26.05.1" by Debian."""
_EXTERNAL_SINCE: Final = (25, 5)
"""First release with EXTERNAL_JOBs as placeholders, for which slurmd starts no process."""
_MOST: Final = 1024
"""Limit of devices of one name, as the limit of Slurm's bitmaps (MAX_GRES_BITMAP)."""
_NONE: Final = "(null)"
SHARING: Final = "gpu"
"""The only GRES with parts in Slurm."""


class WrongGres(ValueError):
    """The text is no list of slurmd; the message has the reason."""


def starts_placeholders(text: str) -> bool:
    """Returns True if slurmd starts placeholders as batch jobs, by slurmd's release, if known."""
    told = _RELEASE.search(text)
    return told is not None and (int(told[1]), int(told[2])) < _EXTERNAL_SINCE


def parse(text: str) -> tuple[Device, ...]:
    """Returns the devices, with their parts. GRES without files are no devices, and need no guard.
    Raises WrongGres."""
    if failed := _FAILED.search(text):
        raise WrongGres(f"slurmd said {failed[0][:200]}")
    lines = [dict(_FIELD.findall(found[1])) for found in _LINE.finditer(text)]
    lines = [line for line in lines if line.get("File", _NONE) != _NONE]
    devices = [device for line in lines if not _is_shared(line) for device in _devices(line)]
    return tuple(_in_parts(devices, [line for line in lines if _is_shared(line)]))


def _is_shared(line: Mapping[str, str]) -> bool:
    return "SHARED" in line.get("Flags", "").split(",")


def _devices(line: Mapping[str, str]) -> Iterator[Device]:
    name, kind = line.get("Name", ""), line.get("Type", "")
    kind = "" if kind == _NONE else kind
    count, names = _counted(line)
    if count == len(names):
        yield from (Device(name, kind, (file,)) for file in names)
    elif count == 1:  # MultipleFiles
        yield Device(name, kind, names)
    else:
        raise WrongGres(f"{name}: {count} devices of {len(names)} files")


def _counted(line: Mapping[str, str]) -> tuple[int, tuple[str, ...]]:
    """Returns the count of a line, and the files."""
    try:
        return int(line.get("Count", "")), hostlist.expand(line["File"], _MOST)
    except ValueError as wrong:
        raise WrongGres(f"{line.get('Name', '')}: {wrong}") from wrong


def _in_parts(devices: Sequence[Device], lines: Iterable[Mapping[str, str]]) -> Iterator[Device]:
    """Yields the devices; GPUs with their parts."""
    parts: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
    for line in lines:
        parts.setdefault(line.get("Name", ""), []).append(_counted(line))
    gpus = [device.files for device in devices if device.name == SHARING]
    for name, of in parts.items():
        if [files for _, files in of] != gpus:
            raise WrongGres(f"{name}: its files are not those of {SHARING}, in the same order")
    counts = iter([{name: of[n][0] for name, of in parts.items()} for n in range(len(gpus))])
    for device in devices:
        yield replace(device, shared=next(counts)) if device.name == SHARING else device
