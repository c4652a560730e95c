"""Controls the running slurmctld through Slurm's programs: reads its state and jobs, and makes slurmctld
read new files.

With two slurmctlds, one slurmctld serves. The slurmctld on standby answers only pings and orders to end.
The slurmctld on standby reads slurm.conf only at its own start. When it takes over, it serves with this
configuration.

In the foreground (`slurmctld -D`, as in a container), slurmctld answers `scontrol reconfigure` before it
restarts itself and reads the files. If this restart fails, slurmctld ends. So a change counts as done
only when slurmctld serves with a new start time.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from slurm_client import hostlist
from slurm_cluster.configuration.plan import Job
from slurm_cluster.configuration.slurm_conf import SlurmConf
from slurm_cluster.programs import ProgramFailed, run

_LOOK_S: Final = 0.2
_ASK_S: Final = 45.0
"""Timeout of a question to slurmctld. The timeout is more than twice MessageTimeout (10 s), because a
command may ask two slurmctlds, and a slurmctld that has just started answers late."""
_WHOLE_S: Final = 1.0
"""Resolution of start times. Two starts within a second may have the same start time, so this class
waits for this time before each restart."""
_STARTED: Final = "BOOT_TIME"
_PAUSES_S: Final = 300.0
"""The kubelet's longest pause before the restart of a container that has ended several times."""
_STATE: Final = re.compile(r"^PartitionName=(\S+) .* State=(\S+)", re.MULTILINE)
_ENDS_S: Final = 10.0
"""Time in which a slurmctld on standby ends. Every second, slurmctld checks for an order to end."""


class NotServing(Exception):
    """Raised if slurmctld does not serve in time."""


class Controller:
    """Gives orders to the slurmctlds in the slurm.conf of this container, and asks them questions."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s

    def serves(self) -> bool:
        """Returns True if a slurmctld answers."""
        return " is UP" in _ping()

    def leads(self, conf: SlurmConf, host: str) -> bool:
        """Returns True if the slurmctld of this host answers. `conf` is the running configuration."""
        return bool(self._started(conf, host))

    def stands_by(self, conf: SlurmConf, host: str) -> bool:
        """Returns True if the slurmctld of this host is on standby."""
        alone = len(conf.hosts()) < 2
        return not alone and not self.leads(conf, host) and self.serves()

    def jobs(self) -> list[Job]:
        """Returns the pending and running jobs. Raises ProgramFailed."""
        lines = run("squeue", "--noheader", "--format=%i|%P|%N").splitlines()
        return [_job(line) for line in lines if line.count("|") == 2]

    def partitions(self) -> dict[str, str]:
        """Returns the state of each partition, including hidden partitions. Raises ProgramFailed."""
        shown = run("scontrol", "--all", "--oneliner", "show", "partition")
        return dict(_STATE.findall(shown))

    def reconfigure(self) -> float:
        """Makes slurmctld and all slurmds read the files. Returns the number of seconds without an
        answer from slurmctld. Raises ProgramFailed, NotServing."""
        before = self._started()
        time.sleep(_WHOLE_S)
        run("scontrol", "reconfigure")
        return self._await(before)

    def restart(self, conf: SlurmConf, host: str) -> float:
        """Ends the slurmctld of this host, so that the kubelet restarts its container. `conf` is the
        running configuration, because the new configuration may have another port. Returns the same
        number and raises the same errors as `reconfigure`."""
        before = self._started(conf, host)
        time.sleep(_WHOLE_S)
        self._end(conf, host)
        return self._await(before, _PAUSES_S)

    def restart_standby(self, conf: SlurmConf, host: str) -> None:
        """Restarts a slurmctld on standby, but does not check its start time. Does nothing if slurmctld
        is down."""
        if not self._is_up(host):
            return
        self._end(conf, host)
        ends = time.monotonic() + _ENDS_S
        while self._is_up(host) and time.monotonic() < ends:
            time.sleep(_LOOK_S)
        self._until(lambda: self._is_up(host), _PAUSES_S)

    def await_serving(self) -> None:
        """Waits until slurmctld serves. Raises NotServing."""
        self._until(self.serves)

    def _await(self, before: str, more_s: float = 0.0) -> float:
        began = time.monotonic()
        self._until(lambda: self._started() not in ("", before), more_s)
        return time.monotonic() - began

    def _until(self, condition: Callable[[], bool], more_s: float = 0.0) -> None:
        within_s = self._within_s + more_s
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise NotServing(f"slurmctld did not serve within {within_s:.0f} s")
            time.sleep(_LOOK_S)

    def _end(self, conf: SlurmConf, host: str) -> None:
        with _only(conf, host) as path:
            run("scontrol", "shutdown", "slurmctld", conf=path)

    def _is_up(self, host: str) -> bool:
        return f" at {host} is UP" in _ping()

    def _started(self, conf: SlurmConf | None = None, host: str = "") -> str:
        """Returns the start time of slurmctld. If `conf` is given, returns the start time of this host's
        slurmctld. Returns "" if slurmctld does not answer."""
        try:
            with _only(conf, host) as path:
                shown = run("scontrol", "show", "config", timeout_s=_ASK_S, conf=path)
        except ProgramFailed:
            return ""
        values = (line.partition("=") for line in shown.splitlines())
        return next((value.strip() for key, _, value in values if key.strip() == _STARTED), "")


def _ping() -> str:
    """Returns a line for each slurmctld, even if scontrol fails because one slurmctld does not
    answer."""
    try:
        return run("scontrol", "ping", timeout_s=_ASK_S)
    except ProgramFailed as failed:
        return failed.message


@contextmanager
def _only(conf: SlurmConf | None, host: str) -> Iterator[Path | None]:
    """Yields the path of a slurm.conf with only the slurmctld of `host`. Yields None if `conf` is
    None."""
    if conf is None:
        yield None
        return
    with TemporaryDirectory(prefix="slurm-ask-") as folder:
        path = Path(folder) / "slurm.conf"
        path.write_text(conf.alone(host))
        yield path


def _job(line: str) -> Job:
    number, partitions, nodes = line.split("|")
    return Job(number, frozenset(partitions.split(",")), frozenset(hostlist.expand(nodes)))
