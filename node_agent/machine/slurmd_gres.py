"""The devices of this machine by Slurm's own numbers: what `slurmd -G` prints.

gres.conf alone does not tell the numbers. slurmd puts its lines in the order of the types in
slurm.conf, or in the order of links where it has detected GPUs by itself, and leaves out what
slurm.conf does not count (gres.c, gres_gpu.c). What it prints is in the order that it numbers the
devices in: one line for each, or for several files in a row; the field Index is not that number.
"""

import re
from collections.abc import Iterator
from typing import Final

from node_agent.machine.devices import Device
from slurm_client import hostlist

_LINE: Final = re.compile(r"\bGres (Name=.*)")
_FIELD: Final = re.compile(r"(\w+)=(\S+)", re.ASCII)
_FAILED: Final = re.compile(r"\b(?:fatal: |error: .*initialization failed).*")
"""What slurmd else calls an error may be of no matter: a node of other cores than slurm.conf says."""
_MOST: Final = 1024
"""Of the devices of one name: Slurm's bitmaps have as many bits (MAX_GRES_BITMAP)."""


class WrongGres(ValueError):
    """What is no list of slurmd's; the message says why."""


def parse(text: str) -> tuple[Device, ...]:
    """Returns the devices. GRES without files are none: nobody has to be kept from what is only counted;
    parts of a GPU (shard, mps) are none of their own. Raises WrongGres."""
    if failed := _FAILED.search(text):
        raise WrongGres(f"slurmd said {failed[0][:200]}")
    lines = (dict(_FIELD.findall(found[1])) for found in _LINE.finditer(text))
    return tuple(device for line in lines for device in _devices(line))


def _devices(line: dict[str, str]) -> Iterator[Device]:
    name, kind, files = line.get("Name", ""), line.get("Type", ""), line.get("File", "(null)")
    if files == "(null)" or "SHARED" in line.get("Flags", "").split(","):
        return
    kind = "" if kind == "(null)" else kind
    try:
        count, names = int(line.get("Count", "")), hostlist.expand(files, _MOST)
    except ValueError as wrong:
        raise WrongGres(f"{name}: {wrong}") from wrong
    if count == len(names):
        yield from (Device(name, kind, (file,)) for file in names)
    elif count == 1:  # MultipleFiles
        yield Device(name, kind, names)
    else:
        raise WrongGres(f"{name}: {count} devices of {len(names)} files")
