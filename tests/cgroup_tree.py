"""A tree of cgroups (v2) in a folder of the test, like the tree that a kubelet makes, and processes in
these cgroups.

On a kernel that uses cgroup v1, the test mounts v2 in addition. This v2 has no controllers, but device
programs work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LET_IN = ("opened", "No such device or address")
_TRY = """
import json, os, stat, sys
with open(sys.argv[1], "w") as procs:
    procs.write(str(os.getpid()))
said = {}
for file in sys.argv[2:]:
    try:
        os.close(os.open(file, os.O_RDWR))
        said[file] = "opened"
    except OSError as error:
        said[file] = error.strerror
print(json.dumps(said))
"""
_MAKE = """
import os, sys
with open(sys.argv[1], "w") as procs:
    procs.write(str(os.getpid()))
os.mknod(sys.argv[2], 0o20600, os.makedev(int(sys.argv[3]), int(sys.argv[4])))
"""


@dataclass(frozen=True)
class Tree:
    """A tree of cgroups. `root` stands for /sys/fs/cgroup of a Node. `bpf` is a folder in a BPF file
    system."""

    root: Path
    bpf: Path

    def make(self, *cgroups: str) -> None:
        for cgroup in cgroups:
            (self.root / cgroup).mkdir(parents=True, exist_ok=True)

    def try_to_open(self, cgroup: str, *files: str | Path) -> dict[str, str]:
        """Opens files in a process of a cgroup. Returns, by file, "opened" or the error."""
        procs = self.root / cgroup / "cgroup.procs"
        argv = [sys.executable, "-c", _TRY, str(procs), *map(str, files)]
        return dict(json.loads(subprocess.run(argv, check=True, capture_output=True).stdout))

    def opens(self, cgroup: str, file: str | Path) -> bool:
        """Returns True if a process in a cgroup may open a device. The devices of `make_devices` have no
        driver, so an allowed `open` fails too, but with another error: the kernel checks the permission
        first."""
        said = self.try_to_open(cgroup, file)[str(file)]
        assert said in {*LET_IN, "Operation not permitted"}, said
        return said in LET_IN

    def makes(self, cgroup: str, file: Path, major: int, minor: int) -> bool:
        """Returns True if a process in a cgroup may make a device file (mknod)."""
        procs = self.root / cgroup / "cgroup.procs"
        argv = [sys.executable, "-c", _MAKE, str(procs), str(file), str(major), str(minor)]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0


@contextmanager
def mounted(folder: Path) -> Iterator[Tree]:
    """Mounts a tree in a folder until the end of the block."""
    tree, bpf = folder / "cgroup", folder / "bpf"
    for kind, place in (("cgroup2", tree), ("bpf", bpf)):
        place.mkdir()
        subprocess.run(["mount", "-t", kind, "none", place], check=True)
    try:
        root = tree / f"slurm-extender-test-{os.getpid()}-{folder.name}"
        yield Tree(root, bpf / "guard")
        for cgroup, _, _ in os.walk(root, topdown=False):
            Path(cgroup).rmdir()
    finally:
        for place in (tree, bpf):
            subprocess.run(["umount", place], check=True)


def make_devices(folder: Path, *names: str) -> list[str]:
    """Makes character devices with a major number for which no driver exists. Returns the paths of the
    devices."""
    folder.mkdir()
    for minor, name in enumerate(names):
        os.mknod(folder / name, 0o20666, os.makedev(60, minor))
    return [str(folder / name) for name in names]
