"""The devices of this machine by Slurm's own numbers: what `slurmd -G` prints.

gres.conf alone does not tell the numbers. slurmd puts its lines in the order of the types in
slurm.conf, or in the order of links where it has detected GPUs by itself, and leaves out what
slurm.conf does not count (gres.c, gres_gpu.c). What it prints is in the order that it numbers the
devices in: one line for each, or for several files in a row; the field Index is not that number.

Of parts of GPUs (shard, mps) there is a line for each GPU, with how many it has, which may be 0, in the
order of the GPUs' own lines (gres_c_s.c: _merge_lists). So a part has the number of its GPU.
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
"""What slurmd else calls an error may be of no matter: a node of other cores than slurm.conf says."""
_RELEASE: Final = re.compile(r"^slurm\S* (\d+)\.(\d+)\.", re.MULTILINE)
"""What `slurmd -V` prints: "slurm 26.05.1", and Debian's "slurm-wlm 26.05.1"."""
_EXTERNAL_SINCE: Final = (25, 5)
"""Since this release placeholders are EXTERNAL_JOBs, of which slurmd starts nothing."""
_MOST: Final = 1024
"""Of the devices of one name: Slurm's bitmaps have as many bits (MAX_GRES_BITMAP)."""
_NONE: Final = "(null)"
SHARING: Final = "gpu"
"""The only GRES that Slurm has parts of."""


class WrongGres(ValueError):
    """What is no list of slurmd's; the message says why."""


def starts_placeholders(text: str) -> bool:
    """Tells whether placeholders are batch jobs, which slurmd starts: by its release, where told."""
    told = _RELEASE.search(text)
    return told is not None and (int(told[1]), int(told[2])) < _EXTERNAL_SINCE


def parse(text: str) -> tuple[Device, ...]:
    """Returns the devices, those that Slurm counts in parts, too, with these. GRES without files are
    none: nobody has to be kept from what is only counted. Raises WrongGres."""
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
    """Returns how many a line counts, and their files."""
    try:
        return int(line.get("Count", "")), hostlist.expand(line["File"], _MOST)
    except ValueError as wrong:
        raise WrongGres(f"{line.get('Name', '')}: {wrong}") from wrong


def _in_parts(devices: Sequence[Device], lines: Iterable[Mapping[str, str]]) -> Iterator[Device]:
    """Yields the devices, the GPUs among them with their parts."""
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
