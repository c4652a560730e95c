"""Cgroups of Pods (cgroup v2), with either cgroup driver of the kubelet."""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path("/sys/fs/cgroup")
ROOTS: Final = ("kubepods", "kubepods.slice")
"""Cgroups of all Pods with the drivers cgroupfs and systemd. A Node may have both after a change of
driver."""
_CLASS: Final = re.compile(r"(?:.*-)?(?:besteffort|burstable)(?:\.slice)?", re.ASCII)
"""QoS classes with own cgroups: Guaranteed Pods have no such cgroup."""
_POD: Final = re.compile(
    r"(?:.*-)?pod([0-9a-f]{8}(?:[0-9a-f_-]{24}|[0-9a-f_-]{28}))(?:\.slice)?", re.ASCII
)
"""systemd writes "_" for the "-" of a uid. The uid of a static Pod is a hash of its configuration."""

CPUS: Final = "cpuset.cpus"
CPUS_IN_FORCE: Final = "cpuset.cpus.effective"
"""File with the CPUs of a cgroup, also by the limits of the cgroups above."""
MEMORY: Final = "memory.max"
SWAP: Final = "memory.swap.max"
LIMITS: Final = (CPUS, MEMORY, SWAP)
"""The files of a cgroup that limit a Pod."""
USED: Final = ("memory.current", "memory.swap.current")
"""Files with the bytes of memory and swap in use."""
EVENTS: Final = "cgroup.events"
"""File of a cgroup with the fields `populated` and `frozen`."""
KILL: Final = "cgroup.kill"
"""File that ends each process in a cgroup, or below it, by a 1."""


class PodCgroup(NamedTuple):
    """A Pod's cgroup."""

    uid: str
    number: int
    """The kernel's number of the cgroup, which the kernel never uses again."""
    populated: bool
    """True if a process is in the cgroup, or below it."""
    place: Path = Path()


class PodCgroups:
    """Cgroups of all Pods of this machine."""

    def __init__(self, root: Path = ROOT, names: Sequence[str] = ROOTS) -> None:
        """Parameter `names` has the cgroups of all Pods below `root`; a cgroup may be missing."""
        self.root = root
        self.places = [root / name for name in names]
        """Cgroups of all Pods, existing or not."""

    def roots(self) -> list[Path]:
        """Returns the existing cgroups of all Pods. Raises FileNotFoundError without any: no kubelet has
        run here, or a kubelet with cgroup v1."""
        found = [place for place in self.places if place.is_dir()]
        if not found:
            raise FileNotFoundError(errno.ENOENT, f"no cgroup {' or '.join(map(str, self.places))}")
        return found

    def parents(self) -> set[Path]:
        """Returns the parents of the cgroups of all Pods: a kubelet with another driver makes another
        cgroup."""
        return {place.parent for place in self.places if place.parent.is_dir()}

    def folders(self) -> list[Path]:
        """Returns all parents of cgroups of single Pods. Raises OSError."""
        return [folder for root in self.roots() for folder in (root, *children(root, _CLASS))]

    def pods(self) -> Iterator[PodCgroup]:
        """Yields the cgroups of Pods. Raises OSError."""
        for folder in self.folders():
            for place in children(folder, _POD):
                with suppress(FileNotFoundError, NotADirectoryError):  # the cgroup was removed just now
                    found = _POD.fullmatch(place.name)
                    assert found is not None
                    uid, number = found[1].replace("_", "-"), place.stat().st_ino
                    yield PodCgroup(uid, number, has_processes(place), place)


def has_processes(place: Path) -> bool:
    """Returns True if a process is in a cgroup, or below the cgroup. Raises OSError."""
    return "populated 1" in read(place / EVENTS)


def limits_now(place: Path) -> dict[str, str]:
    """Returns the existing files with limits, and with the use of memory. Raises OSError."""
    found: dict[str, str] = {}
    for name in (*LIMITS, *USED):
        with suppress(FileNotFoundError):
            found[name] = read(place / name)
    if not found:
        place.stat()  # raises an error for a removed cgroup, but not for a cgroup without limits
    return found


def read(file: Path) -> str:
    """Returns the text of a file. Raises OSError; FileNotFoundError for a removed cgroup, for which the
    kernel has two errors."""
    with _removal(file):
        return file.read_text().strip()


def write(file: Path, text: str, *, waits: bool = False) -> None:
    """Writes a file. Raises OSError, as `read`. With `waits`, the writer waits while the kernel frees
    memory for a lower memory.max. Otherwise the Pod's own processes wait (O_NONBLOCK, Linux 6.16)."""
    with _removal(file):
        fd = os.open(file, os.O_WRONLY | os.O_TRUNC | (0 if waits else os.O_NONBLOCK))
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


@contextmanager
def _removal(file: Path) -> Iterator[None]:
    """Raises FileNotFoundError for both errors of a removed cgroup."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENODEV:  # the file was opened before the removal
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file)) from error
        raise


def depth(cgroup: Path) -> int:
    """Returns the number of levels below the root of all cgroups, the only cgroup without events. Raises
    OSError if the root is not mounted here: a part of the machine's cgroups is invisible."""
    for levels, place in enumerate((cgroup, *cgroup.parents)):
        if not (place / "cgroup.procs").exists():
            break
        if not (place / EVENTS).exists():
            return levels
    raise OSError(errno.EXDEV, "not all of the machine's cgroups are mounted here", str(cgroup))


def children(folder: Path, name: re.Pattern[str]) -> Iterator[Path]:
    """Yields the cgroups in a cgroup with such a name, none in a removed cgroup. Raises OSError."""
    with suppress(FileNotFoundError):
        yield from (place for place in folder.iterdir() if name.fullmatch(place.name))
