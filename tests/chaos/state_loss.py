"""Slurm loses all of its state, and an admin brings it back as docs/outages.md says."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from subprocess import SubprocessError

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.layout import Layout
from tests.chaos.checker import Causes
from tests.chaos.nemesis import Nemesis
from tests.chaos.observer import Observer
from tests.chaos.quiet_periods import QuietPeriods

AFTERWARDS_S = 60.0
"""For so long an overlap may come of it."""
_WITHIN_S = 60.0
_OPEN, _CLOSED = " State=UP", " State=DOWN"


class StateLoss:
    """slurmctld is killed and comes back without its state, with its partitions closed until the Pods
    that run are in its books again."""

    def __init__(
        self,
        cluster: Cluster,
        nemesis: Nemesis,
        observer: Observer,
        quiet: QuietPeriods,
        causes: Causes,
        log: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._nemesis = nemesis
        self._observer = observer
        self._quiet = quiet
        self._causes = causes
        self._log = log
        folder = Layout(cluster.directory).slurm
        self._conf, self._state = folder / "etc/slurm.conf", folder / "var/state"

    def inflict(self) -> None:
        with self._quiet.disturbed("state loss"):
            self._nemesis.hold_down("slurmctld")
            before = self._conf.read_text()
            self._conf.write_text(before.replace(_OPEN, _CLOSED))
            self._causes.state_lost.append(time.monotonic())
            for folder in self._state.iterdir():
                shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
            begin = time.monotonic()
            self._nemesis.let_up("slurmctld")
            missing = self._wait_for_jobs(begin)
            self._log(f"state lost; {missing} Pods without a job after {time.monotonic() - begin:.1f} s")
            self._conf.write_text(before)
            for line in before.splitlines():
                if line.startswith("PartitionName=") and _OPEN in line:
                    self._open(line.split()[0])

    def _wait_for_jobs(self, begin: float) -> int:
        """Returns how many bound Pods are still without a job."""
        while True:
            bound = {each.uid for each in self._observer.pods() if each.node and not each.over}
            with suppress(SubprocessError):
                bound -= {job.uid for job in self._observer.jobs() if job.live}
                if not bound:
                    return 0
            if time.monotonic() - begin > _WITHIN_S:
                return len(bound)
            time.sleep(0.5)

    def _open(self, partition: str) -> None:
        for _ in range(10):
            try:
                self._cluster.run_slurm("scontrol", "update", partition, "state=up")
            except ClusterError:
                time.sleep(1.0)
            else:
                return
