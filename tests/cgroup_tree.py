"""A tree of cgroups (v2) as a kubelet makes it, below a folder of our own, and processes in it.

A kernel that has cgroup v1 in use has v2 beside it: without controllers, but with device programs.
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
    """`root` is what a Node has under /sys/fs/cgroup; `bpf` is a BPF file system."""

    root: Path
    bpf: Path

    def make(self, *cgroups: str) -> None:
        for cgroup in cgroups:
            (self.root / cgroup).mkdir(parents=True, exist_ok=True)

    def try_to_open(self, cgroup: str, *files: str | Path) -> dict[str, str]:
        """Returns what a process in a cgroup is told of each file: "opened", or the error."""
        procs = self.root / cgroup / "cgroup.procs"
        argv = [sys.executable, "-c", _TRY, str(procs), *map(str, files)]
        return dict(json.loads(subprocess.run(argv, check=True, capture_output=True).stdout))

    def opens(self, cgroup: str, file: str | Path) -> bool:
        """Tells whether a process in a cgroup may open a device. Of those that stand for others here
        there is no driver, which is found out after that."""
        said = self.try_to_open(cgroup, file)[str(file)]
        assert said in {*LET_IN, "Operation not permitted"}, said
        return said in LET_IN

    def makes(self, cgroup: str, file: Path, major: int, minor: int) -> bool:
        """Tells whether a process in a cgroup can make a file for a device."""
        procs = self.root / cgroup / "cgroup.procs"
        argv = [sys.executable, "-c", _MAKE, str(procs), str(file), str(major), str(minor)]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0


@contextmanager
def mounted(folder: Path) -> Iterator[Tree]:
    """A tree in a folder; it is gone at the end."""
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
    """Makes character devices without a driver, of a major that is nobody's, and returns their files."""
    folder.mkdir()
    for minor, name in enumerate(names):
        os.mknod(folder / name, 0o20666, os.makedev(60, minor))
    return [str(folder / name) for name in names]
