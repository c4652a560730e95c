"""Finds the cgroups of Pods, and reads and writes their files (cgroup v2). Works with both cgroup
drivers of the kubelet."""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path("/sys/fs/cgroup")
ROOTS: Final = ("kubepods", "kubepods.slice")
"""Names of the cgroup that contains all Pods: with the driver cgroupfs, and with the driver systemd.
After a change of the driver, a Node may have both cgroups."""
_CLASS: Final = re.compile(r"(?:.*-)?(?:besteffort|burstable)(?:\.slice)?", re.ASCII)
"""Names of the cgroups of QoS classes. Guaranteed Pods are in no such cgroup."""
_POD: Final = re.compile(
    r"(?:.*-)?pod([0-9a-f]{8}(?:[0-9a-f_-]{24}|[0-9a-f_-]{28}))(?:\.slice)?", re.ASCII
)
"""Names of the cgroups of single Pods. systemd writes "_" for the "-" of a uid. The uid of a static Pod
is a hash of its configuration, and has no "-"."""

CPUS: Final = "cpuset.cpus"
CPUS_IN_FORCE: Final = "cpuset.cpus.effective"
"""File with the CPUs that a cgroup can use. The limits of the cgroups above are included."""
MEMORY: Final = "memory.max"
SWAP: Final = "memory.swap.max"
LIMITS: Final = (CPUS, MEMORY, SWAP)
"""The files of a cgroup that limit a Pod."""
USED: Final = ("memory.current", "memory.swap.current")
"""Files with the bytes of memory and swap in use."""
EVENTS: Final = "cgroup.events"
"""File of a cgroup with the fields `populated` and `frozen`."""
KILL: Final = "cgroup.kill"
"""File that ends all processes in a cgroup, and below the cgroup, if a program writes 1."""


class PodCgroup(NamedTuple):
    """A Pod's cgroup."""

    uid: str
    number: int
    """The kernel's number of the cgroup. The kernel never uses the number again."""
    populated: bool
    """True if a process is in the cgroup, or below the cgroup."""
    place: Path = Path()


class PodCgroups:
    """Cgroups of all Pods of this machine."""

    def __init__(self, root: Path = ROOT, names: Sequence[str] = ROOTS) -> None:
        """Parameter `names` has the cgroups that contain all Pods (`ROOTS`), as paths below `root`. A
        cgroup may be missing."""
        self.root = root
        self.places = [root / name for name in names]
        """Paths of the cgroups that contain all Pods. A cgroup may be missing."""

    def roots(self) -> list[Path]:
        """Returns the existing cgroups that contain all Pods. Raises FileNotFoundError if no such cgroup
        exists. In this case, no kubelet has run here, or the kubelet uses cgroup v1."""
        found = [place for place in self.places if place.is_dir()]
        if not found:
            raise FileNotFoundError(errno.ENOENT, f"no cgroup {' or '.join(map(str, self.places))}")
        return found

    def parents(self) -> set[Path]:
        """Returns the folders above the cgroups that contain all Pods. After a change of the driver, the
        kubelet makes its new cgroup in one of these folders."""
        return {place.parent for place in self.places if place.parent.is_dir()}

    def folders(self) -> list[Path]:
        """Returns all cgroups that directly contain the cgroups of single Pods. Raises OSError."""
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
    """Returns the texts of a cgroup's files with limits, and of the files with the use of memory, by the
    name of the file. Leaves out missing files. Raises OSError."""
    found: dict[str, str] = {}
    for name in (*LIMITS, *USED):
        with suppress(FileNotFoundError):
            found[name] = read(place / name)
    if not found:
        place.stat()  # raises an error for a removed cgroup, but not for a cgroup without limits
    return found


def read(file: Path) -> str:
    """Returns the text of a cgroup's file. Raises OSError. For a removed cgroup, the kernel has two
    errors, but this function always raises FileNotFoundError."""
    with _removal(file), FileIO(file) as opened:  # `open` would add buffers for each of many small files
        return opened.readall().decode().strip()


def write(file: Path, text: str, *, waits: bool = False) -> None:
    """Writes a cgroup's file. Raises the same errors as `read`. After a lower memory.max, the kernel may
    need time to free memory. With `waits`, the write returns only after this time. Otherwise the write
    returns at once, and the Pod's own processes wait (O_NONBLOCK, Linux 6.16)."""
    with _removal(file):
        fd = os.open(file, os.O_WRONLY | os.O_TRUNC | (0 if waits else os.O_NONBLOCK))
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


@contextmanager
def _removal(file: Path) -> Iterator[None]:
    """Raises FileNotFoundError for both of the kernel's errors about a removed cgroup."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENODEV:  # the file was opened before the removal
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file)) from error
        raise


def depth(cgroup: Path) -> int:
    """Returns the number of levels from the root of all cgroups to a cgroup. Only the root has no file
    cgroup.events. Raises OSError if the root is not mounted here, because then a part of the machine's
    cgroups is invisible."""
    for levels, place in enumerate((cgroup, *cgroup.parents)):
        if not (place / "cgroup.procs").exists():
            break
        if not (place / EVENTS).exists():
            return levels
    raise OSError(errno.EXDEV, "not all of the machine's cgroups are mounted here", str(cgroup))


def children(folder: Path, name: re.Pattern[str]) -> Iterator[Path]:
    """Yields the child cgroups with a matching name. For a removed cgroup, yields nothing. Raises
    OSError."""
    # A cgroup has some 70 files. A Path for each file takes half of the walk's time, and the event loop
    # answers the kubelet only after the walk.
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for each in entries:
            if name.fullmatch(each.name):
                yield folder / each.name
