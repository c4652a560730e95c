"""The extender, killed by kill -9 at chosen calls: `python -m tests.end_to_end.crashing_extender`.

SLURM_EXTENDER_CRASH_AT names the calls in their order, and the side of each call:
"SlurmRest.submit:before SlurmRest.submit:after". An extender dies before a call, or after the call and
before the extender learns of the result. The next extender starts at once, without new imports of the
modules, because this program forks the extenders. After the last crash, this program kills itself in the
same way. The log names each crash.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, NoReturn

from extender.app import main
from extender.execution.dispatcher import Dispatcher
from kubernetes_client.rest import KubernetesRest
from slurm_client.rest.client import SlurmRest

CRASHED: Final = "crashed at "
"""Beginning of a line in the log; a call and a side follow."""
_TARGETS: Final = {"Dispatcher": Dispatcher, "KubernetesRest": KubernetesRest, "SlurmRest": SlurmRest}
_PR_SET_PDEATHSIG: Final = 1


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit  # never reached


def arm(point: str) -> None:
    """Makes the extender die at a call of an adapter."""
    call, side = point.split(":")
    adapter, method = call.split(".")
    original: Callable[..., Any] = getattr(_TARGETS[adapter], method)

    @wraps(original)
    async def deadly(*arguments: Any, **options: Any) -> Any:
        if side == "before":
            die()
        await original(*arguments, **options)
        die()

    setattr(_TARGETS[adapter], method, deadly)


def crash(points: Sequence[str]) -> NoReturn:
    """Runs one extender after the other. If an extender ends without a crash, this program ends with the
    same exit status."""
    for point in points:
        child = os.fork()
        if not child:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            arm(point)
            main()
            sys.exit()
        signal.signal(signal.SIGTERM, lambda *_, child=child: os.kill(child, signal.SIGTERM))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != -signal.SIGKILL:
            sys.exit(status)
        print(f"{CRASHED}{point}", flush=True)  # noqa: T201 - the cluster keeps the log
    die()


if __name__ == "__main__":
    crash(os.environ.pop("SLURM_EXTENDER_CRASH_AT").split())
