"""The running slurmctld, by Slurm's own programs: whether it serves, its jobs, how it gets new files.

`scontrol reconfigure` is answered before slurmctld has read anything where it runs in the foreground
(`slurmctld -D`, as in a container), and a slurmctld in the foreground that cannot start anew is gone. So
nothing here counts as done before slurmctld serves with another time of start.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from slurm_client import hostlist
from slurm_cluster.configuration.plan import Job
from slurm_cluster.programs import ProgramFailed, run

_LOOK_S: Final = 0.2
_ASK_S: Final = 15.0
_WHOLE_S: Final = 1.0
"""Times of start have whole seconds: within one of them a new start would look like the one before."""
_STARTED: Final = "BOOT_TIME"


class NotServing(Exception):
    """slurmctld did not serve in time."""


class Controller:
    """The slurmctld that the configuration in this container names."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s

    def serves(self) -> bool:
        """Whether a slurmctld answers."""
        try:
            return " is UP" in run("scontrol", "ping", timeout_s=_ASK_S)
        except ProgramFailed as failed:
            return " is UP" in failed.said

    def jobs(self) -> list[Job]:
        """Returns the jobs that wait or run. Raises ProgramFailed."""
        lines = run("squeue", "--noheader", "--format=%i|%P|%N").splitlines()
        return [_job(line) for line in lines if line.count("|") == 2]

    def reconfigure(self) -> float:
        """Has slurmctld, and by it all slurmds, read the files. Returns the seconds in which nobody
        answered. Raises ProgramFailed, NotServing."""
        before = self._started()
        time.sleep(_WHOLE_S)
        run("scontrol", "reconfigure")
        return self._await(before)

    def restart(self, before_conf: Path) -> float:
        """Ends slurmctld, which whoever runs its container starts again. `before_conf` is the slurm.conf
        by which the one that runs is found: the new one may have another port. Returns the seconds in
        which nobody answered. Raises ProgramFailed, NotServing."""
        before = self._started(before_conf)
        time.sleep(_WHOLE_S)
        run("scontrol", "shutdown", "slurmctld", conf=before_conf)
        return self._await(before)

    def await_serving(self) -> None:
        """Returns once it serves. Raises NotServing."""
        self._until(self.serves)

    def _await(self, before: str) -> float:
        began = time.monotonic()
        self._until(lambda: self._started() not in ("", before))
        return time.monotonic() - began

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._within_s
        while not condition():
            if time.monotonic() > deadline:
                raise NotServing(f"slurmctld did not serve within {self._within_s:.0f} s")
            time.sleep(_LOOK_S)

    def _started(self, conf: Path | None = None) -> str:
        """Returns when the slurmctld that answers was started; "" where none answers."""
        try:
            shown = run("scontrol", "show", "config", timeout_s=_ASK_S, conf=conf)
        except ProgramFailed:
            return ""
        values = (line.partition("=") for line in shown.splitlines())
        return next((value.strip() for key, _, value in values if key.strip() == _STARTED), "")


def _job(line: str) -> Job:
    number, partitions, nodes = line.split("|")
    return Job(number, frozenset(partitions.split(",")), frozenset(hostlist.expand(nodes)))
