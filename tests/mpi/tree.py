"""Builds a tree of files with Debian's Slurm, Open MPI and sshd. srun and mpirun both use this tree, so
they start the same programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from deploy.local.cluster import Cluster
from deploy.local.programs import debian
from deploy.local.programs.cache import build_once, recipe_hash, trees_folder
from deploy.local.progress import Report, silent
from deploy.local.slurm import tree as slurm_tree
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec

RELEASE: Final = "24.11"
"""Release of Slurm whose Debian packages support PMIx. Ranks of Open MPI find each other by PMIx."""
BARRIER: Final = "/usr/bin/barrier"
"""Path of a test program that uses MPI."""
WORDS: Final = "/usr/bin/words"
"""Path of a test program that uses only PMIx. A program with MPI makes the same calls of PMIx at its
start and end."""
_PACKAGES: Final = ("openmpi-bin", "openssh-client", "openssh-server")
_BARRIER: Final = Path(__file__).with_name("barrier.c")
_WORDS: Final = Path(__file__).parents[1] / "slurmd_pods/rank.c"


def tree(report: Report = silent) -> Path:
    """Returns the folder with the tree. The first call on a machine downloads the packages, and builds
    both test programs."""
    recipes = [__file__, str(_BARRIER), str(_WORDS), debian.__file__, slurm_tree.__file__]
    key = recipe_hash(*(Path(path).read_bytes() for path in recipes))
    return build_once(
        trees_folder() / f"slurm-{RELEASE}-{DEBIAN_SUITES[RELEASE]}-mpi-{key}", _build, report
    )


def _build(place: Path) -> None:
    slurm_tree.unpack_slurm(RELEASE, place, _PACKAGES)
    (place / "usr/bin/mpirun").symlink_to("mpirun.openmpi")  # Debian's alternatives would make this link
    _compile(_BARRIER, place, BARRIER, "libmpi.so.40")
    _compile(_WORDS, place, WORDS, "libpmix.so.2")


def _compile(source: Path, place: Path, program: str, needs: str) -> None:
    assert shutil.which("cc"), "a C compiler is needed: apt-get install gcc libc6-dev"
    (library,) = place.glob(f"usr/lib/*/{needs}")
    command = ["cc", "-fPIE", "-o", f"{place}{program}", str(source), str(library)]
    subprocess.run([*command, "-Wl,--allow-shlib-undefined"], check=True)


class WithMpi(Cluster):
    """A cluster whose slurmds have the files of this tree."""

    @classmethod
    def prepare(cls, spec: ClusterSpec, *, report: Report = silent) -> tuple[Path, dict[str, str]]:
        assert spec.release == RELEASE
        return tree(report), {}
