"""Slurm as Debian packages it, unpacked into a folder: no installation, no service, no root file system.

The tree is built once per machine and only ever mounted read-only. What the packages' maintainer
scripts would have done for us (alternatives, users, mount points) is done here instead.

Debian's packages change under their names, and two of them need not work together on the day of a
build. So a tree is tried before it is kept; nothing that failed is.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from deploy.local import database
from deploy.local.cache import build_once, recipe_hash, trees_folder
from deploy.local.errors import ClusterError
from deploy.local.progress import Report, heartbeat
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from deploy.local.users import JOB_USERS, SLURM_UID, SLURMRESTD_UID

# Takes a finished tree, and whether slurmdbd is to run too. Raises ClusterError if Slurm does not serve.
Trial = Callable[[Path, bool], None]

KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

_PACKAGES: Final = (
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "hostname",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-jwt-plugin",
    "slurmctld",
    "slurmd",
    "slurmrestd",
)
# Those that tell their version without a configuration: slurmdbd does not.
_DAEMONS: Final = ("slurmctld", "slurmd", "slurmrestd")
_APT_OPTIONS: Final = (
    'APT::Install-Recommends "false"',
    # A machine whose clock runs ahead of its mirror is not what this cluster is about.
    'Acquire::Check-Valid-Until "false"',
    # apt's own user cannot look into a cache folder under /root.
    'APT::Sandbox::User "root"',
)
# Unpacked packages expect a merged /usr, which base-files' script would have made.
_MERGE_USR: Final = 'for d in bin sbin lib lib64; do mkdir -p "$1/usr/$d"; ln -s "usr/$d" "$1/$d"; done'
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
            _unpack(suite, [*_PACKAGES, *(database.PACKAGES if spec.accounting else ())], place)
            _finish(place)
            _try_daemons(release, place)
            trial(place, False)
            if spec.accounting:
                _add_database(suite, place, trial, report)

    return build_once(tree_place(spec), build, report)


def tree_place(spec: ClusterSpec) -> Path:
    """Where the tree is, or will be."""
    recipe = [Path(__file__), *([Path(database.__file__)] if spec.accounting else [])]
    kind = "-accounting" if spec.accounting else ""
    key = recipe_hash(*(path.read_bytes() for path in recipe))
    return trees_folder() / f"slurm-{spec.release}-{DEBIAN_SUITES[spec.release]}{kind}-{key}"


def require_release(release: str, program: str, said: str) -> None:
    """Raises ClusterError unless a program's `-V` ("slurm-wlm 26.05.5") is of this release of Slurm."""
    if f" {release}." not in said:
        raise ClusterError(f"{program} should be of Slurm {release}, and says {said.strip()!r}")


def _try_daemons(release: str, tree: Path) -> None:
    for daemon in _DAEMONS:
        said = _run(["chroot", str(tree), f"/usr/sbin/{daemon}", "-V"], env={**os.environ})
        require_release(release, daemon, said)


def _unpack(suite: str, packages: Sequence[str], place: Path) -> None:
    _install_tools()
    with TemporaryDirectory(prefix="slurm-extender-") as scratch:
        command = ["mmdebstrap", "--mode=root", "--variant=extract", "--format=directory"]
        command += [f"--keyring={KEYRING}"]
        command += [f"--aptopt={option}" for option in _APT_OPTIONS]
        command += [f"--setup-hook={_MERGE_USR}", f"--include={','.join(packages)}"]
        command += [suite, str(place), *_sources(suite)]
        _run(command, env={**os.environ, "TMPDIR": scratch})


def _sources(suite: str) -> list[str]:
    """The Debian mirror that apt uses here; nothing, hence mmdebstrap's own default, elsewhere."""
    here = platform.freedesktop_os_release()
    if here["ID"] != "debian":
        return []
    listing = ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)"]
    targets = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    for line in targets.splitlines():
        release, component, uri = line.split()
        if (release, component) == (here.get("VERSION_CODENAME"), "main"):
            return [f"deb {uri} {suite} main"]
    return []


def _install_tools() -> None:
    wanted = [] if shutil.which("mmdebstrap") else ["mmdebstrap"]
    wanted += [] if KEYRING.exists() else ["debian-archive-keyring"]
    if not wanted:
        return
    install = ["apt-get", "install", "-y", "--no-install-recommends", *wanted]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if subprocess.run(install, env=quiet, capture_output=True, check=False).returncode != 0:
        _run(["apt-get", "update"], env=quiet)
        _run(install, env=quiet)


def _run(command: list[str], env: dict[str, str]) -> str:
    """What it said; ClusterError with the end of that if it fails."""
    done = subprocess.run(
        command,
        env=env,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-20:])
        raise ClusterError(f"{command[0]} failed ({done.returncode}):\n{last}")
    return done.stdout


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
        _unpack(suite, ["libmariadb3"], other)
        (library,) = other.glob("usr/lib/*/libmariadb.so.3")
        shutil.copy(library, tree / library.relative_to(other))


def _finish(tree: Path) -> None:
    for folder in _MOUNT_POINTS:
        (tree / folder).mkdir(parents=True, exist_ok=True)
    _choose_alternatives(tree)
    _write_users(tree)
    (tree / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
    (tree / "etc/hosts").touch()  # a cluster's own is mounted over it


def _choose_alternatives(tree: Path) -> None:
    (tree / "usr/bin/sh").unlink(missing_ok=True)
    (tree / "usr/bin/sh").symlink_to("dash")
    for program in [*(tree / "usr/bin").glob("*-wlm"), *(tree / "usr/sbin").glob("*-wlm")]:
        plain = program.with_name(program.name.removesuffix("-wlm"))
        if not plain.exists():
            plain.symlink_to(program.name)


def _write_users(tree: Path) -> None:
    users = {**JOB_USERS, "slurm": SLURM_UID, "slurmrestd": SLURMRESTD_UID}
    passwd = [f"{name}:x:{uid}:{uid}::/home/{name}:/bin/sh" for name, uid in users.items()]
    group = [f"{name}:x:{uid}:" for name, uid in users.items()]
    (tree / "etc/passwd").write_text("\n".join(passwd) + "\n")
    (tree / "etc/group").write_text("\n".join(group) + "\n")
