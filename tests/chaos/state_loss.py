"""Deletes all of Slurm's state, and recovers Slurm as docs/troubleshooting/outages.md describes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from subprocess import SubprocessError

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.layout import Layout
from tests.chaos.checker import Causes
from tests.chaos.nemesis import Nemesis
from tests.chaos.observer import Observer
from tests.chaos.quiet_periods import QuietPeriods

AFTERWARDS_S = 60.0
"""Seconds after a loss of state: an overlap in this time may be a consequence of the loss."""
_WITHIN_S = 60.0
_OPEN, _CLOSED = " State=UP", " State=DOWN"


@dataclass(frozen=True, slots=True)
class StateLoss:
    """Restarts slurmctld without its state. Partitions stay DOWN until running Pods have jobs again."""

    cluster: Cluster
    nemesis: Nemesis
    observer: Observer
    quiet: QuietPeriods
    causes: Causes
    log: Callable[[str], None]

    def inflict(self) -> None:
        slurm = Layout(self.cluster.directory).slurm
        conf, state = slurm / "etc/slurm.conf", slurm / "var/state"
        with self.quiet.disturbed("state loss"):
            self.nemesis.hold_down("slurmctld")
            before = conf.read_text()
            conf.write_text(before.replace(_OPEN, _CLOSED))
            self.causes.state_lost.append(time.monotonic())
            for folder in state.iterdir():
                shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
            begin = time.monotonic()
            self.nemesis.let_up("slurmctld")
            missing = self._wait_for_jobs(begin)
            self.log(f"state lost; {missing} Pods without a job after {time.monotonic() - begin:.1f} s")
            conf.write_text(before)
            for line in before.splitlines():
                if line.startswith("PartitionName=") and _OPEN in line:
                    self._open(line.split()[0])

    def _wait_for_jobs(self, begin: float) -> int:
        """Waits until all bound Pods have a job, for at most _WITHIN_S. Returns the number of bound Pods
        without a job."""
        while True:
            bound = {each.workload for each in self.observer.pods() if each.node and not each.over}
            with suppress(SubprocessError):
                bound -= {job.uid for job in self.observer.jobs() if job.live}
                if not bound:
                    return 0
            if time.monotonic() - begin > _WITHIN_S:
                return len(bound)
            time.sleep(0.5)

    def _open(self, partition: str) -> None:
        for _ in range(10):
            try:
                self.cluster.run_slurm("scontrol", "update", partition, "state=up")
            except ClusterError:
                time.sleep(1.0)
            else:
                return
