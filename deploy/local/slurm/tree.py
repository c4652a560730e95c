"""Debian's packages of Slurm, unpacked into a folder, without an installation and without services.

Each machine builds the tree once. Clusters mount the tree read-only.

Debian replaces packages by newer packages with the same names, and the newer packages may not work
together. So each new tree is tried, and a tree that fails is not kept.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from deploy.local.errors import ClusterError
from deploy.local.programs import debian
from deploy.local.programs.cache import build_once, recipe_hash, trees_folder
from deploy.local.programs.debian import unpack
from deploy.local.progress import Report, heartbeat
from deploy.local.slurm import database
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec

# A function that tries Slurm from a finished tree. The second argument is True to run slurmdbd too.
# Raises ClusterError if Slurm does not serve.
Trial = Callable[[Path, bool], None]

_PACKAGES: Final = (
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "hostname",
    "sackd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-jwt-plugin",
    "slurmctld",
    "slurmd",
    "slurmrestd",
)
# Daemons that print their version without a configuration. slurmdbd needs a configuration even for this.
_DAEMONS: Final = ("slurmctld", "slurmd", "slurmrestd")
_MOUNT_POINTS: Final = ("dev", "etc/slurm", "home", "proc", "run", "tmp", "var/lib/slurm")


def slurm_tree(spec: ClusterSpec, trial: Trial, report: Report) -> Path:
    """Returns the folder with this release of Slurm. The first call on a machine downloads 30 MB.

    Clusters with accounting have a separate folder, three times as large. Raises ClusterError, with the
    output of the program, if Debian's current packages do not work together.
    """
    release, suite = spec.release, DEBIAN_SUITES[spec.release]

    def build(place: Path) -> None:
        report(f"unpacking Slurm {release} from Debian {suite}, and trying it (about 15 s)")
        with heartbeat(report, lambda: "still unpacking Slurm"):
            unpack_slurm(release, place, database.PACKAGES if spec.accounting else ())
            _try_daemons(release, place)
            trial(place, False)
            if spec.accounting:
                _add_database(suite, place, trial, report)

    return build_once(tree_place(spec), build, report)


def unpack_slurm(release: str, place: Path, more: Sequence[str] = ()) -> None:
    """Unpacks this release, and further Debian packages, into a folder, as a root file system for
    clusters. Raises ClusterError."""
    unpack(DEBIAN_SUITES[release], [*_PACKAGES, *more], place)
    for folder in _MOUNT_POINTS:
        (place / folder).mkdir(parents=True, exist_ok=True)
    debian.finish(place)
    (place / "etc/hosts").touch()  # each cluster mounts its own file here


def tree_place(spec: ClusterSpec) -> Path:
    """Returns the path of the tree, even if the tree is not built yet."""
    modules = [__file__, debian.__file__, *([database.__file__] if spec.accounting else [])]
    kind = "-accounting" if spec.accounting else ""
    key = recipe_hash(*(Path(module).read_bytes() for module in modules))
    return trees_folder() / f"slurm-{spec.release}-{DEBIAN_SUITES[spec.release]}{kind}-{key}"


def require_release(release: str, program: str, version: str) -> None:
    """Raises ClusterError unless a program's `-V` ("slurm-wlm 26.05.5") is of this release of Slurm."""
    if f" {release}." not in version:
        raise ClusterError(f"{program} should be of Slurm {release}, and says {version.strip()!r}")


def _try_daemons(release: str, tree: Path) -> None:
    for daemon in _DAEMONS:
        version = debian.run(["chroot", str(tree), f"/usr/sbin/{daemon}", "-V"])
        require_release(release, daemon, version)


def _add_database(suite: str, tree: Path, trial: Trial, report: Report) -> None:
    database.make_system_tables(tree)
    chosen = database.choose_client_library(
        suite, lambda other: _take_client_library(other, tree), lambda: trial(tree, True)
    )
    if chosen != suite:
        report(f"slurmdbd gets Debian {chosen}'s libmariadb: it does not work with its own")


def _take_client_library(suite: str, tree: Path) -> None:
    """Replaces the tree's libmariadb by the libmariadb of another suite."""
    with TemporaryDirectory(prefix="slurm-extender-") as scratch:
        other = Path(scratch) / "tree"
        unpack(suite, ["libmariadb3"], other)
        (library,) = other.glob("usr/lib/*/libmariadb.so.3")
        shutil.copy(library, tree / library.relative_to(other))
