"""Slurm with Open MPI and sshd, all of them Debian's, in one tree: what slurmds and Pods start is the same."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from deploy.local import debian, slurm_tree
from deploy.local.cache import build_once, recipe_hash, trees_folder
from deploy.local.cluster import Cluster
from deploy.local.progress import Report, silent
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec

RELEASE: Final = "24.11"
"""Of Slurm: of Debian's, the one whose slurmds speak PMIx, which is how Open MPI's library knows the other ranks."""
PROGRAM: Final = "/usr/bin/barrier"
_PACKAGES: Final = ("openmpi-bin", "openssh-client", "openssh-server")
_BARRIER: Final = Path(__file__).with_name("barrier.c")


def tree(report: Report = silent) -> Path:
    """The folder; the first call on a machine downloads it, and builds barrier.c into it."""
    recipes = [__file__, str(_BARRIER), debian.__file__, slurm_tree.__file__]
    key = recipe_hash(*(Path(path).read_bytes() for path in recipes))
    return build_once(trees_folder() / f"slurm-{RELEASE}-{DEBIAN_SUITES[RELEASE]}-mpi-{key}", _build, report)


def _build(place: Path) -> None:
    debian.unpack(DEBIAN_SUITES[RELEASE], [*slurm_tree._PACKAGES, *_PACKAGES], place)
    slurm_tree._finish(place)
    (place / "usr/bin/mpirun").symlink_to("mpirun.openmpi")  # one of Debian's alternatives
    assert shutil.which("cc"), "a C compiler is needed: apt-get install gcc libc6-dev"
    (library,) = place.glob("usr/lib/*/libmpi.so.40")
    program = place / PROGRAM.removeprefix("/")
    command = ["cc", "-fPIE", "-o", program, _BARRIER, library, "-Wl,--allow-shlib-undefined"]
    subprocess.run(command, check=True)


class WithMpi(Cluster):
    """A cluster whose slurmds have this tree."""

    @classmethod
    def prepare(cls, spec: ClusterSpec, *, report: Report = silent) -> tuple[Path, dict[str, str]]:
        return tree(report), {}
