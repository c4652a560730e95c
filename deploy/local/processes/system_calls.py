"""Linux system calls without a wrapper in Python 3.11."""

import ctypes
import os
import signal
from pathlib import Path
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWPID: Final = 0x20000000

MS_RDONLY: Final = 0x1
MS_REMOUNT: Final = 0x20
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_SLAVE: Final = 0x80000

_PR_SET_PDEATHSIG: Final = 1

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def mount(source: Path | str, target: Path, kind: str = "", flags: int = 0) -> None:
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode() or None)
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), None), f"mount {source} on {target}")


def die_with_parent() -> None:
    """Sends SIGKILL to this process when the thread that forked it ends (prctl(2) PR_SET_PDEATHSIG)."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL)), "prctl")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
