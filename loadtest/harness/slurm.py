"""Reads Slurm's reports about the jobs of Pods: squeue's lines, states, and start times."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from deploy.local.cluster import Cluster
from loadtest.harness.command import Broken
from loadtest.harness.concurrently import until
from loadtest.harness.pods import Pod
from slurm_client.rest.client import SlurmRest

_FORMAT: Final = "%i|%j|%T|%N"

# Matches the log's lines about starts of jobs: by an immediate allocation, by the main scheduler, and by
# the backfill scheduler of 24.11. The backfill scheduler of 26.05 logs no starts.
_STARTED: Final = re.compile(
    r"\[([\d:.T-]+)\] (?:sched: (?:_slurm_rpc_allocate_resources|Allocate)"
    r"|sched/backfill: _start_job: Started) JobId=(\d+) (?:NodeList=(?!\(null\))|in )"
)


def starts(log: str) -> Mapping[int, float]:
    """Returns the time of each job's start in slurmctld's log (LogTimeFormat=iso8601_ms)."""
    return {int(job): datetime.fromisoformat(at).timestamp() for at, job in _STARTED.findall(log)}


def compare_with_squeue(cluster: Cluster, pods: Sequence[Pod]) -> None:
    """Raises Broken unless squeue shows exactly one job for each Pod. The job must be RUNNING on the
    Slurm node that belongs to the Pod's Kubernetes Node."""
    jobs = {f"{pod.name}@default": pod for pod in pods}
    expected = {f"{pod.job_id}|{name}|RUNNING|{pod.node}" for name, pod in jobs.items()}
    lines = cluster.run_slurm("squeue", "-h", "-o", _FORMAT).stdout.splitlines()
    # The name of a further job of a Pod ends in "#" and a suffix.
    shown = [re.sub(r"#\w+\|", "|", line) for line in lines]
    reported = {line for line in shown if line.split("|")[1] in jobs}
    if differ := sorted(expected ^ reported):
        raise Broken(f"{len(differ)} lines are only in squeue or only of Pods: {differ[:5]}")


async def all_ended(slurm: SlurmRest, jobs: Collection[int], within_s: float) -> None:
    """Waits until all these jobs have ended. Raises Broken after the timeout."""

    async def ended() -> bool:
        return all(state.ended for state in (await slurm.states(jobs)).values())

    await until(ended, "jobs that were cancelled have ended", within_s)
