"""The namespaces of a cluster. When the cluster's supervisor ends, the kernel ends every process in the
PID namespace.

The supervisor stays outside the PID namespace, and so sees its children's ids as the rest of the machine
does. The supervisor's first child is the namespace's init. When the init dies, the kernel kills all
processes in the namespace, including orphans that ignore SIGTERM (slurmstepd, jobs).
"""

import os
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from deploy.local.processes import system_calls


@dataclass(frozen=True, slots=True)
class Bind:
    """A bind mount: `source`, a file or a directory, also appears at `target`."""

    source: str
    target: str
    recursive: bool = False
    read_only: bool = False


def enter_mount_namespace(binds: Sequence[Bind]) -> None:
    """Mounts `binds` for this process and its children. The machine does not see the mounts, and
    the mounts end with the processes."""
    system_calls.unshare(system_calls.CLONE_NEWNS)
    # MS_SLAVE: later mounts of the machine appear in this namespace, but mounts in this namespace do not
    # appear on the machine.
    system_calls.mount("none", Path("/"), flags=system_calls.MS_REC | system_calls.MS_SLAVE)
    for bind in binds:
        _mount(bind)


def _mount(bind: Bind) -> None:
    flags = system_calls.MS_BIND | (system_calls.MS_REC if bind.recursive else 0)
    system_calls.mount(bind.source, Path(bind.target), flags=flags)
    if bind.read_only:  # the call that creates a bind mount ignores this flag (mount(2))
        flags |= system_calls.MS_REMOUNT | system_calls.MS_RDONLY
        system_calls.mount("none", Path(bind.target), flags=flags)


def fork_init(procs: Sequence[Path]) -> int:
    """Starts the init of a new PID namespace, and returns its process id. Mounts the namespace's /proc
    on `procs`. After this call, the calling process can start no threads (unshare(2), CLONE_NEWPID)."""
    system_calls.unshare(system_calls.CLONE_NEWPID)
    ready, tell = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(ready)
        _run_init(tell, procs)
    os.close(tell)
    try:
        if not os.read(ready, 1):
            raise OSError("the namespace's init did not start")
    finally:
        os.close(ready)
    return pid


def _run_init(tell: int, procs: Sequence[Path]) -> NoReturn:
    try:
        system_calls.die_with_parent()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        for proc in procs:
            system_calls.mount("proc", proc, kind="proc")
        os.write(tell, b".")  # fails, and ends the init, if the parent died before die_with_parent
        os.close(tell)
        while True:
            signal.sigwait({signal.SIGCHLD})
            _reap_orphans()
    except OSError:
        traceback.print_exc()
    finally:
        os._exit(1)


def _reap_orphans() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
