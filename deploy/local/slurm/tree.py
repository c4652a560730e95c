"""Slurm as Debian packages it, unpacked into a folder: no installation, no service, no root file system.

The tree is built once per machine and only ever mounted read-only.

Debian's packages change under their names, and two of them need not work together on the day of a
build. So a tree is tried before it is kept; nothing that failed is.
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

# Takes a finished tree, and whether slurmdbd is to run too. Raises ClusterError if Slurm does not serve.
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
# Those that tell their version without a configuration: slurmdbd does not.
_DAEMONS: Final = ("slurmctld", "slurmd", "slurmrestd")
_MOUNT_POINTS: Final = ("dev", "etc/slurm", "home", "proc", "run", "tmp", "var/lib/slurm")


def slurm_tree(spec: ClusterSpec, trial: Trial, report: Report) -> Path:
    """The folder that holds this release of Slurm; the first call on a machine downloads 30 MB.

    With accounting it is another folder, three times the size, so that nobody else pays for it.
    Raises ClusterError, with what the program said, when Debian's packages of today do not work.
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
    """Unpacks this release, and more of Debian's packages, into a folder, and makes it a root that
    clusters mount. Raises ClusterError."""
    unpack(DEBIAN_SUITES[release], [*_PACKAGES, *more], place)
    for folder in _MOUNT_POINTS:
        (place / folder).mkdir(parents=True, exist_ok=True)
    debian.finish(place)
    (place / "etc/hosts").touch()  # a cluster's own is mounted over it


def tree_place(spec: ClusterSpec) -> Path:
    """Where the tree is, or will be."""
    modules = [__file__, debian.__file__, *([database.__file__] if spec.accounting else [])]
    kind = "-accounting" if spec.accounting else ""
    key = recipe_hash(*(Path(module).read_bytes() for module in modules))
    return trees_folder() / f"slurm-{spec.release}-{DEBIAN_SUITES[spec.release]}{kind}-{key}"


def require_release(release: str, program: str, said: str) -> None:
    """Raises ClusterError unless a program's `-V` ("slurm-wlm 26.05.5") is of this release of Slurm."""
    if f" {release}." not in said:
        raise ClusterError(f"{program} should be of Slurm {release}, and says {said.strip()!r}")


def _try_daemons(release: str, tree: Path) -> None:
    for daemon in _DAEMONS:
        said = debian.run(["chroot", str(tree), f"/usr/sbin/{daemon}", "-V"])
        require_release(release, daemon, said)


def _add_database(suite: str, tree: Path, trial: Trial, report: Report) -> None:
    database.make_system_tables(tree)
    chosen = database.choose_client_library(
        suite, lambda other: _take_client_library(other, tree), lambda: trial(tree, True)
    )
    if chosen != suite:
        report(f"slurmdbd gets Debian {chosen}'s libmariadb: it does not work with its own")


def _take_client_library(suite: str, tree: Path) -> None:
    """Replaces the tree's libmariadb by that of another suite."""
    with TemporaryDirectory(prefix="slurm-extender-") as scratch:
        other = Path(scratch) / "tree"
        unpack(suite, ["libmariadb3"], other)
        (library,) = other.glob("usr/lib/*/libmariadb.so.3")
        shutil.copy(library, tree / library.relative_to(other))
