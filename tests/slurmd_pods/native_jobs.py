"""Submits short native jobs on one or two nodes, one after the other without a pause. Each job writes a
line to a file if all its steps succeed. `lost` compares the lines with the states in Slurm."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from deploy.local.cluster import Cluster
from deploy.local.layout import Layout
from tests.eventually import eventually

_PAUSE_S = 0.7
_LOOKS_EVERY = 5  # jobs between two reads of the states; slurmctld forgets a job 60 s after its end
_LIVE = frozenset({"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"})


class NativeJobs:
    """Submits native jobs to the partition `dynamic` of a cluster."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._lines = f"/tmp/{name}"
        self._file: Path = Layout(cluster.directory).slurm / "tmp" / name
        self._random = random.Random(name)
        self.states: dict[int, str] = {}
        """Latest known state of each job in Slurm."""

    @contextmanager
    def coming(self) -> Iterator[NativeJobs]:
        """Submits jobs until the block ends. Then waits until all jobs have ended."""
        stop = threading.Event()

        def come() -> None:
            while not stop.wait(_PAUSE_S):
                self._submit()
                if len(self.states) % _LOOKS_EVERY == 0:
                    self._look()

        with ThreadPoolExecutor(1) as thread:
            comes = thread.submit(come)
            try:
                yield self
            finally:
                stop.set()
            comes.result()
        eventually(self._have_ended, "the native jobs have ended", 60)

    def _submit(self) -> None:
        seconds = self._random.choice((0.2, 1, 2, 4))
        nodes = self._random.choice((1, 1, 1, 2))
        tasks = nodes * self._random.choice((1, 2, 4))
        submitted = self._cluster.run_slurm(
            *("sbatch", "--parsable", "--no-requeue", "-p", "dynamic", "-o", "/dev/null", "--mem=100"),
            *("-N", str(nodes), "-n", str(tasks), "-J", f"native-{len(self.states)}"),
            f"--wrap=srun -N {nodes} sleep {seconds} && echo $SLURM_JOB_ID >> {self._lines}",
        )
        self.states[int(submitted.stdout)] = "PENDING"

    def _look(self) -> None:
        told = self._cluster.run_slurm("squeue", "-h", "-t", "all", "-o", "%i %T").stdout.split()
        now = dict(zip(map(int, told[::2]), told[1::2], strict=True))
        self.states |= {job: now[job] for job in self.states.keys() & now.keys()}

    def _have_ended(self) -> bool:
        self._look()
        return _LIVE.isdisjoint(self.states.values())

    @property
    def lost(self) -> list[str]:
        """Describes each job that failed or did not write exactly one line."""
        lines = self._file.read_text().split() if self._file.exists() else []
        return [
            f"{job}: {state}, {lines.count(str(job))} lines"
            for job, state in self.states.items()
            if state != "COMPLETED" or lines.count(str(job)) != 1
        ]
