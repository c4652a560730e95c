"""The namespaces that a cluster lives in, so that the kernel ends all of it when its supervisor ends.

The supervisor stays outside the PID namespace, so that it knows its children by the ids that everyone
else uses. Its first child is the namespace's init: when that dies, the kernel kills whatever is left
in there, orphans that ignore SIGTERM (slurmstepd, jobs) included.
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
    """`source`, a file or a directory, is seen at `target` too."""

    source: str
    target: str
    recursive: bool = False
    read_only: bool = False


def enter_mount_namespace(binds: Sequence[Bind]) -> None:
    """This process and its children see `binds`; the machine does not, and they vanish with us."""
    system_calls.unshare(system_calls.CLONE_NEWNS)
    # Slave: what is mounted on the machine later shows up here, but nothing goes the other way.
    system_calls.mount("none", Path("/"), flags=system_calls.MS_REC | system_calls.MS_SLAVE)
    for bind in binds:
        _mount(bind)


def _mount(bind: Bind) -> None:
    flags = system_calls.MS_BIND | (system_calls.MS_REC if bind.recursive else 0)
    system_calls.mount(bind.source, Path(bind.target), flags=flags)
    if bind.read_only:  # the flag is ignored in the call that makes a bind mount (mount(2))
        flags |= system_calls.MS_REMOUNT | system_calls.MS_RDONLY
        system_calls.mount("none", Path(bind.target), flags=flags)


def fork_init(procs: Sequence[Path]) -> int:
    """Starts the init of a new PID namespace, and returns its process id. Mounts the namespace's /proc
    on `procs`. After this the kernel lets this process start no threads."""
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
        os.write(tell, b".")  # fails, and ends us, if the parent died before die_with_parent
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
