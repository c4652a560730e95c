"""What Slurm says of Pods' jobs: squeue's lines, states, and when it started them."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final

from deploy.local.cluster import Cluster
from loadtest.harness.command import Broken
from loadtest.harness.concurrently import for_each, until
from loadtest.harness.pods import Pod
from slurm_client.model import JobSpec
from slurm_client.rest import SlurmRest

_FORMAT: Final = "%i|%j|%T|%N"
_FIRST_NATIVE: Final = 100

# An allocation at once; one by the main scheduler; one by the backfill scheduler of 24.11: that of 26.05
# says nothing where it starts a job.
_STARTED: Final = re.compile(
    r"\[(?P<at>[\d:.T-]+)\] (?:"
    r"sched: _slurm_rpc_allocate_resources JobId=(?P<rpc>\d+) NodeList=(?!\(null\))"
    r"|sched: Allocate JobId=(?P<main>\d+) NodeList="
    r"|sched/backfill: _start_job: Started JobId=(?P<backfill>\d+) in )"
)


def starts(log: str) -> Mapping[int, float]:
    """From lines of slurmctld's log: job id -> `time.time()` of its start; slurmrestd has seconds only.
    LogTimeFormat=iso8601_ms,format_stderr in slurm.conf."""
    found = ((each, each["rpc"] or each["main"] or each["backfill"]) for each in _STARTED.finditer(log))
    return {int(job): datetime.fromisoformat(each["at"]).timestamp() for each, job in found}


def compare_with_squeue(cluster: Cluster, pods: Sequence[Pod]) -> None:
    """Raises Broken where not just the job of each Pod runs, on the node of the Pod's Node."""
    lines = set(cluster.run_slurm("squeue", "-h", "-o", _FORMAT).stdout.splitlines())
    names = Counter(line.split("|")[1] for line in lines)
    differ = [pod for pod in pods if _line(pod) not in lines or names[f"{pod.name}@default"] > 1]
    if differ:
        expected = "; ".join(_line(pod) for pod in differ[:5])
        raise Broken(f"{len(differ)} Pods differ from squeue, which does not say just: {expected}")


async def submit(cluster: Cluster, jobs: Iterable[JobSpec]) -> None:
    """Jobs that no Pod asks for. Raises SlurmError."""
    async with aclosing(SlurmRest(cluster.slurmrestd_url, cluster.token_file)) as slurm:
        await for_each(enumerate(jobs, _FIRST_NATIVE), lambda each: slurm.submit(each[1], each[0]))


async def all_ended(slurm: SlurmRest, jobs: Collection[int], within_s: float) -> None:
    """Waits until none of these jobs is left. Raises Broken."""

    async def ended() -> bool:
        return all(state.ended for state in (await slurm.states(jobs)).values())

    await until(ended, "jobs that were cancelled have ended", within_s)


def _line(pod: Pod) -> str:
    return f"{pod.job_id}|{pod.name}@default|RUNNING|{pod.node}"
