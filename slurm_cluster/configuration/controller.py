"""The running slurmctld, by Slurm's own programs: whether it serves, its jobs, how it gets new files.

Of two slurmctlds one serves. The other stands by: it answers only a ping and an order to end, reads
slurm.conf at its start, and takes over with that.

In the foreground (`slurmctld -D`, as in a container), slurmctld answers `scontrol reconfigure` before it
has read anything, and ends if it cannot restart. So nothing counts as done until slurmctld serves with
another time of start."""

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
"""More than MessageTimeout (10 s) for each of two slurmctlds: one that has just started answers late."""
_WHOLE_S: Final = 1.0
"""Times of start have whole seconds: within one of them a new start would look like the one before."""
_STARTED: Final = "BOOT_TIME"
_PAUSES_S: Final = 300.0
"""The kubelet waits so long at most before it starts a container that has ended a few times."""
_STATE: Final = re.compile(r"^PartitionName=(\S+) .* State=(\S+)", re.MULTILINE)
_ENDS_S: Final = 10.0
"""In which a slurmctld that stands by has ended: it looks every second whether it should."""


class NotServing(Exception):
    """slurmctld did not serve in time."""


class Controller:
    """The slurmctld that the configuration in this container names."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s

    def serves(self) -> bool:
        """Whether a slurmctld answers."""
        return " is UP" in _ping()

    def leads(self, conf: SlurmConf, host: str) -> bool:
        """Whether it is the slurmctld of this host that answers. `conf` is what it runs with."""
        return bool(self._started(conf, host))

    def stands_by(self, conf: SlurmConf, host: str) -> bool:
        """Whether the slurmctld of this host waits for another one to fail."""
        alone = len(conf.hosts()) < 2
        return not alone and not self.leads(conf, host) and self.serves()

    def jobs(self) -> list[Job]:
        """Returns the jobs that wait or run. Raises ProgramFailed."""
        lines = run("squeue", "--noheader", "--format=%i|%P|%N").splitlines()
        return [_job(line) for line in lines if line.count("|") == 2]

    def partitions(self) -> dict[str, str]:
        """Returns the state of each partition, hidden partitions included. Raises ProgramFailed."""
        shown = run("scontrol", "--all", "--oneliner", "show", "partition")
        return dict(_STATE.findall(shown))

    def reconfigure(self) -> float:
        """Has slurmctld, and by it all slurmds, read the files. Returns the seconds in which nobody
        answered. Raises ProgramFailed, NotServing."""
        before = self._started()
        time.sleep(_WHOLE_S)
        run("scontrol", "reconfigure")
        return self._await(before)

    def restart(self, conf: SlurmConf, host: str) -> float:
        """Ends the slurmctld of this host; its container starts it again. `conf`: the running
        configuration (the new one may have another port). Returns and raises as `reconfigure`."""
        before = self._started(conf, host)
        time.sleep(_WHOLE_S)
        self._end(conf, host)
        return self._await(before, _PAUSES_S)

    def restart_standby(self, conf: SlurmConf, host: str) -> None:
        """Restarts a slurmctld on standby, without a time of start. One that is down needs nothing."""
        if not self._is_up(host):
            return
        self._end(conf, host)
        ends = time.monotonic() + _ENDS_S
        while self._is_up(host) and time.monotonic() < ends:
            time.sleep(_LOOK_S)
        self._until(lambda: self._is_up(host), _PAUSES_S)

    def await_serving(self) -> None:
        """Returns once it serves. Raises NotServing."""
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
        """Returns when slurmctld (with `conf`: that of this host) was started; "" without an answer."""
        try:
            with _only(conf, host) as path:
                shown = run("scontrol", "show", "config", timeout_s=_ASK_S, conf=path)
        except ProgramFailed:
            return ""
        values = (line.partition("=") for line in shown.splitlines())
        return next((value.strip() for key, _, value in values if key.strip() == _STARTED), "")


def _ping() -> str:
    """Returns a line for each slurmctld. scontrol fails where one of them does not answer."""
    try:
        return run("scontrol", "ping", timeout_s=_ASK_S)
    except ProgramFailed as failed:
        return failed.said


@contextmanager
def _only(conf: SlurmConf | None, host: str) -> Iterator[Path | None]:
    """Yields a slurm.conf that names one slurmctld alone; without `conf` none."""
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
