"""Repairs Slurm's own damage, because the damage would fill the nodes. After a kill, slurmctld may show
an ended native job as running, or start a job twice and drain the job's node."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from extender.node_sync.drains import PREFIX
from tests.chaos.checker import Causes
from tests.chaos.history import SeenJob

LONGEST_S = 25.0
"""Longer than any native job of a plan runs."""
_INTERVAL_S = 4.0


class Repair:
    """Cancels native jobs that outlive their script, and resumes nodes that Slurm drained."""

    def __init__(self, cluster: Cluster, causes: Causes, jobs: Callable[[], list[SeenJob]]) -> None:
        self._cluster, self._causes, self._jobs = cluster, causes, jobs
        self._over = Event()
        self._thread = Thread(target=self._run)
        self._running_since: dict[int, float] = {}
        self.done: Counter[str] = Counter()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_INTERVAL_S):
            with suppress(ClusterError):  # slurmctld is down
                self._resume_nodes()
                self._cancel_finished_jobs()

    def _resume_nodes(self) -> None:
        asked = ("--noheader", "--Node", "--states=drain,down", "--format=%N %E")
        drained = self._cluster.run_slurm("sinfo", *asked).stdout.splitlines()
        for node, _, reason in (line.partition(" ") for line in dict.fromkeys(drained)):
            if reason.startswith(PREFIX) or node in self._causes.held_out:
                continue
            self._cluster.run_slurm("scontrol", "update", f"nodename={node}", "state=resume")
            self.done[f"nodes resumed: {reason}"] += 1

    def _cancel_finished_jobs(self) -> None:
        now = time.monotonic()
        running = {job.id: job for job in self._jobs() if job.running and not job.uid}
        self._running_since = {id_: self._running_since.get(id_, now) for id_ in running}
        for id_, since in self._running_since.items():
            if now - since > LONGEST_S:
                self._causes.native_cancelled.add(running[id_].name)
                self._cluster.run_slurm("scancel", str(id_))
                self.done["native jobs cancelled"] += 1
