"""Submits native jobs all at once to preempt Pods, while nothing fails."""

from __future__ import annotations

import time

from tests.chaos.cluster_spec import HIGH
from tests.chaos.plan import JobPlan
from tests.chaos.workload import Workload

_JOBS = 6
_CPUS = 4
_SECONDS = 3
_TAKES_S = 4.0  # until Slurm has signalled all preempted jobs, and the Pods are in deletion


def preemption_burst(workload: Workload, number: int) -> None:
    """Submits the jobs. Returns after Slurm has signalled all preempted jobs."""
    for each in range(_JOBS):
        workload.submit(JobPlan(0.0, f"burst-{number}-{each}", "alice", _CPUS, _SECONDS, None, HIGH))
    time.sleep(_TAKES_S)
