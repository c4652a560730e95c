"""Program that starts a container of a test: `python -m tests.login.container PLAN`. PLAN is a `Plan` in
JSON.

This program starts in a new mount namespace and PID namespace, and then replaces itself by the program
of the container. The container's program has only the capabilities that the Pod lists for the container.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

CAPABILITIES = {"CHOWN": 0, "SETGID": 6, "SETUID": 7, "SYS_CHROOT": 18, "AUDIT_WRITE": 29}
"""The capabilities that a Pod of this chart may list, with their numbers (linux/capability.h)."""
_DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38


@dataclass(frozen=True)
class Plan:
    """Settings of a container: the files, the command, the user, and the capabilities."""

    root: str
    """Folder with the image's files."""
    argv: list[str]
    env: dict[str, str]
    mounts: list[tuple[str, str, bool]] = field(default_factory=list)
    """Mounts: the path on this machine, the path in the container, and True for a read-only mount."""
    user: int = 0
    user_group: int = 0
    group: int = 0
    """Group of the Pod's volumes (fsGroup). The container's processes are members of this group."""
    capabilities: list[str] = field(default_factory=list)
    read_only: bool = True

    def command(self) -> list[str]:
        """Returns the command that starts the container. If the process that started the command ends,
        all processes of the container end."""
        tied = ["setpriv", "--pdeathsig", "KILL"]
        apart = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
        return [*tied, *apart, sys.executable, "-m", __name__, json.dumps(asdict(self))]


def main() -> None:
    """Prepares the container's file system and rights, and then executes the container's program in this
    process."""
    plan = Plan(**json.loads(sys.argv[1]))
    _mount(plan)
    os.chroot(plan.root)
    os.chdir("/")
    _give_up(plan.capabilities)
    os.setgroups([plan.group])
    if plan.user:
        os.setgid(plan.user_group)
        os.setuid(plan.user)
    os.execve(plan.argv[0], plan.argv, plan.env)


def _mount(plan: Plan) -> None:
    root = Path(plan.root)
    _call("mount", "--bind", plan.root, plan.root)
    _call("mount", "-t", "proc", "proc", str(root / "proc"))
    _make_devices(root / "dev")
    for source, target, read_only in plan.mounts:
        place = root / target.lstrip("/")
        if Path(source).is_dir():
            place.mkdir(parents=True, exist_ok=True)  # a folder in a volume: /run/slurm in /run
        _call("mount", "--bind", source, str(place))
        if read_only:
            _call("mount", "-o", "remount,bind,ro", str(place))
    if plan.read_only:
        _call("mount", "-o", "remount,bind,ro", plan.root)


def _make_devices(folder: Path) -> None:
    _call("mount", "-t", "tmpfs", "-o", "mode=0755", "dev", str(folder))
    for name in _DEVICES:
        (folder / name).touch()
        _call("mount", "--bind", f"/dev/{name}", str(folder / name))
    (folder / "pts").mkdir()
    options = "newinstance,ptmxmode=0666,mode=0620,gid=5"
    _call("mount", "-t", "devpts", "-o", options, "devpts", str(folder / "pts"))
    (folder / "ptmx").symlink_to("pts/ptmx")
    (folder / "fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (folder / name).symlink_to(f"/proc/self/fd/{number}")


def _give_up(kept: list[str]) -> None:
    """Drops all capabilities except `kept`. Also prevents setuid programs from adding a capability."""
    numbers = {CAPABILITIES[name] for name in kept}
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for number in set(range(last + 1)) - numbers:
        _prctl(_PR_CAPBSET_DROP, number)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _call(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
