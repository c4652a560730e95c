"""The extender, killed by kill -9 at one chosen call: `python -m tests.end_to_end.crashing_extender`.

SLURM_EXTENDER_CRASH_AT names the call and the side of it, "SlurmRest.submit:after": before it is made,
or after it was carried out and before anybody learned of it. The product itself knows nothing of this.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

from extender.app import main
from extender.control.dispatcher import Dispatcher
from kubernetes_client.rest import KubernetesRest
from slurm_client.rest import SlurmRest

_TARGETS = {"Dispatcher": Dispatcher, "KubernetesRest": KubernetesRest, "SlurmRest": SlurmRest}


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit  # never reached


def arm(point: str) -> None:
    """Makes one call of an adapter deadly."""
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


if __name__ == "__main__":
    arm(os.environ.pop("SLURM_EXTENDER_CRASH_AT"))
    main()
