"""Debian's packages, unpacked into a folder, without an installation and without maintainer scripts.

This module does the necessary work of these scripts instead (alternatives, users).
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from deploy.local.errors import ClusterError
from deploy.local.users import JOB_USERS, SLURM_UID, SLURMRESTD_UID

KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

APT_OPTIONS: Final = (
    'APT::Install-Recommends "false"',
    # The clock of this machine may be ahead of the mirror's clock.
    'Acquire::Check-Valid-Until "false"',
    # apt's own user cannot look into a cache folder under /root.
    'APT::Sandbox::User "root"',
)
# Unpacked packages expect a merged /usr. Without an installation, this command makes it, and not the
# script of base-files.
_MERGE_USR: Final = 'for d in bin sbin lib lib64; do mkdir -p "$1/usr/$d"; ln -s "usr/$d" "$1/$d"; done'
TOOLS: Final = {"mmdebstrap": "mmdebstrap", str(KEYRING): "debian-archive-keyring"}


def unpack(suite: str, packages: Sequence[str], place: Path) -> None:
    """Unpacks packages of a suite, and their dependencies, into a new folder. Raises ClusterError."""
    install(TOOLS)
    with TemporaryDirectory(prefix="slurm-extender-") as scratch:
        command = ["mmdebstrap", "--mode=root", "--variant=extract", "--format=directory"]
        command += [f"--keyring={KEYRING}"]
        command += [f"--aptopt={option}" for option in APT_OPTIONS]
        command += [f"--setup-hook={_MERGE_USR}", f"--include={','.join(packages)}"]
        command += [suite, str(place), *sources(suite)]
        run(command, env={**os.environ, "TMPDIR": scratch})


def install(tools: Mapping[str, str]) -> None:
    """Installs on this machine the Debian packages of missing tools. `tools` maps a program, or the path
    of a file, to a package. Raises ClusterError."""
    wanted = [package for tool, package in tools.items() if not find_tool(tool)]
    if not wanted:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *wanted]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if subprocess.run(command, env=quiet, capture_output=True, check=False).returncode != 0:
        run(["apt-get", "update"], env=quiet)
        run(command, env=quiet)


def find_tool(tool: str) -> str | None:
    """Returns the path of a program (also of a program for root only), or of an existing file."""
    if tool.startswith("/"):
        return tool if Path(tool).exists() else None
    return shutil.which(tool, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """Returns the output of a command. Raises ClusterError with the end of the output if the command
    fails."""
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


def finish(tree: Path) -> None:
    """Does the work of maintainer scripts in a tree: chooses alternatives (Slurm's programs without
    -wlm, dash as sh), and writes the users."""
    _choose_alternatives(tree)
    _write_users(tree)
    (tree / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")


def sources(suite: str) -> list[str]:
    """Returns the Debian mirror of apt on this machine; [] on other distributions, so that mmdebstrap
    uses its default."""
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
