"""Runs Slurm's programs (scontrol, squeue, sacctmgr), and returns their output."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_TIMEOUT_S: Final = 60.0


class ProgramFailed(Exception):
    """Raised if a program of Slurm fails or does not end in time. The message is the program's
    output."""

    def __init__(self, command: Sequence[str], message: str) -> None:
        super().__init__(f"{' '.join(command)}: {message}")
        self.message = message


def run(*command: str, timeout_s: float = _TIMEOUT_S, conf: Path | None = None) -> str:
    """Runs a program, and returns its standard output. `conf` is the path of another slurm.conf. Raises
    ProgramFailed."""
    environment = os.environ if conf is None else {**os.environ, "SLURM_CONF": str(conf)}
    try:
        done = subprocess.run(  # noqa: S603 -- a program of Slurm's, and arguments without a shell
            command, env=environment, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProgramFailed(command, str(error)) from error
    if done.returncode != 0:
        output = " ".join(f"{done.stderr}\n{done.stdout}".split())
        raise ProgramFailed(command, output or f"exit status {done.returncode}")
    return done.stdout
