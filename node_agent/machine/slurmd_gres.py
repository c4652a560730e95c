"""Reads the devices of this machine, with Slurm's own numbers, from the output of `slurmd -G`.

gres.conf alone does not determine the numbers. slurmd sorts the lines by the types in slurm.conf, or by
links after its own detection of GPUs. slurmd also omits devices that slurm.conf does not count (gres.c,
gres_gpu.c). The lines of the output are in the order of the numbers. A line is for a single device, or
for several files in a row. The field Index of a line is a different number.

For parts of GPUs (shard, mps), the output has a line for each GPU, with the number of parts, which may
be 0. These lines have the order of the GPUs' own lines (gres_c_s.c: _merge_lists). So a part has the
number of its GPU.
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
"""Pattern of fatal messages. slurmd's other errors may be harmless, for example if slurm.conf declares
other cores."""
_RELEASE: Final = re.compile(r"^slurm\S* (\d+)\.(\d+)\.", re.MULTILINE)
"""Pattern of the output of `slurmd -V`: "slurm 26.05.1", or "slurm-wlm 26.05.1" from Debian's
package."""
_EXTERNAL_SINCE: Final = (25, 5)
"""First release in which placeholders are EXTERNAL_JOBs. For an EXTERNAL_JOB, slurmd starts no
process."""
_MOST: Final = 1024
"""Largest number of devices of the same name, as in Slurm's bitmaps (MAX_GRES_BITMAP)."""
_NONE: Final = "(null)"
SHARING: Final = "gpu"
"""Name of the only GRES that Slurm can divide into parts."""


class WrongGres(ValueError):
    """The text is not a list of slurmd. The message has the reason."""


def starts_placeholders(text: str) -> bool:
    """Returns True if slurmd starts placeholders as batch jobs. This depends on slurmd's release. If the
    release is unknown, returns False."""
    release = _RELEASE.search(text)
    return release is not None and (int(release[1]), int(release[2])) < _EXTERNAL_SINCE


def parse(text: str) -> tuple[Device, ...]:
    """Returns the devices, with their parts. GRES without files are left out, because they need no
    guard. Raises WrongGres."""
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
    """Yields the devices. GPUs get the number of their parts."""
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
