"""Where the kubelet keeps the cgroups of Pods (cgroup v2), with either of its drivers."""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path("/sys/fs/cgroup")
ROOTS: Final = ("kubepods", "kubepods.slice")
"""By the drivers cgroupfs and systemd. A Node that was moved from one to the other has both."""
_CLASS: Final = re.compile(r"(?:.*-)?(?:besteffort|burstable)(?:\.slice)?", re.ASCII)
"""The QoS classes that have a cgroup of their own: of Guaranteed Pods there is none."""
_POD: Final = re.compile(
    r"(?:.*-)?pod([0-9a-f]{8}(?:[0-9a-f_-]{24}|[0-9a-f_-]{28}))(?:\.slice)?", re.ASCII
)
"""systemd has "_" for the "-" of an uid; that of a static Pod is a hash of its configuration."""

CPUS: Final = "cpuset.cpus"
MEMORY: Final = "memory.max"
SWAP: Final = "memory.swap.max"
LIMITS: Final = (CPUS, MEMORY, SWAP)
"""The files of a cgroup that limit a Pod."""
USED: Final = ("memory.current", "memory.swap.current")
"""Files with the bytes of memory and swap in use."""
EVENTS: Final = "cgroup.events"
"""The file of a cgroup that says whether there are processes in it."""


class PodCgroup(NamedTuple):
    """A Pod's cgroup."""

    uid: str
    number: int
    """The kernel's number of the cgroup, which the kernel never uses again."""
    populated: bool
    """True if a process is in the cgroup, or below it."""
    place: Path = Path()


class PodCgroups:
    """The cgroups of all Pods of this machine."""

    def __init__(self, root: Path = ROOT, names: Sequence[str] = ROOTS) -> None:
        """`names` are the cgroups that Pods are in, below `root`, as far as they are there."""
        self.root = root
        self.places = [root / name for name in names]
        """Those that Pods are in, whether they are there or not."""

    def roots(self) -> list[Path]:
        """Returns the cgroups that all Pods are in, one below the other or in classes. Raises
        FileNotFoundError where there is none: no kubelet has run here, or by cgroup v1."""
        found = [place for place in self.places if place.is_dir()]
        if not found:
            raise FileNotFoundError(errno.ENOENT, f"no cgroup {' or '.join(map(str, self.places))}")
        return found

    def parents(self) -> set[Path]:
        """Returns the cgroups in which those are made that all Pods are in: a kubelet that starts with
        another driver makes another."""
        return {place.parent for place in self.places if place.parent.is_dir()}

    def folders(self) -> list[Path]:
        """Returns all cgroups in which those of Pods are made. Raises OSError."""
        return [folder for root in self.roots() for folder in (root, *_children(root, _CLASS))]

    def pods(self) -> Iterator[PodCgroup]:
        """Yields the cgroups of Pods. Raises OSError."""
        for folder in self.folders():
            for place in _children(folder, _POD):
                with suppress(FileNotFoundError, NotADirectoryError):  # it goes just now
                    found = _POD.fullmatch(place.name)
                    assert found is not None
                    uid, number = found[1].replace("_", "-"), place.stat().st_ino
                    yield PodCgroup(uid, number, has_processes(place), place)


def has_processes(place: Path) -> bool:
    """Tells whether there are processes in a cgroup, or below it. Raises OSError."""
    return "populated 1" in read(place / EVENTS)


def limits_now(place: Path) -> dict[str, str]:
    """Returns the present files that limit a cgroup, and the files of its memory use. Raises OSError."""
    found: dict[str, str] = {}
    for name in (*LIMITS, *USED):
        with suppress(FileNotFoundError):
            found[name] = read(place / name)
    if not found:
        place.stat()  # is it gone, or without limits?
    return found


def read(file: Path) -> str:
    """Returns what a file of a cgroup says. Raises OSError: FileNotFoundError of a cgroup that is gone,
    for which the kernel has two words."""
    with _removal(file):
        return file.read_text().strip()


def write(file: Path, text: str) -> None:
    """Writes a file of a cgroup. Raises OSError, as `read`. Without O_NONBLOCK a write to memory.max
    returns when the Pod uses no more than that, for which the kernel frees memory, and kills. With it
    (Linux 6.16) the Pod's own processes wait for that."""
    with _removal(file):
        fd = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK)
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
        if error.errno == errno.ENODEV:  # it was opened before its cgroup went
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file)) from error
        raise


def depth(cgroup: Path) -> int:
    """Returns how many levels a cgroup is below the root of all cgroups, which alone has no events.
    Raises OSError where that root is not mounted: one sees a part of the machine's cgroups only."""
    for levels, place in enumerate((cgroup, *cgroup.parents)):
        if not (place / "cgroup.procs").exists():
            break
        if not (place / EVENTS).exists():
            return levels
    raise OSError(errno.EXDEV, "not all of the machine's cgroups are mounted here", str(cgroup))


def _children(folder: Path, name: re.Pattern[str]) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from (place for place in folder.iterdir() if name.fullmatch(place.name))
