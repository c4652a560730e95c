"""Finds Slurm's limits that are not in force for a native job. The functions are pure.

cgroup.conf(5) sets the limits, but the file may be in any folder. So the agent looks at the effect in
the cgroup of each job (task_cgroup_*.c, cgroup_v2.c). slurmstepd writes the job's cores and memory, even
if the job has all cores and memory of the Node. slurmstepd also attaches a device program, even for a
job without devices.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from node_agent.enforcement.limits import UNLIMITED
from node_agent.pods.cgroups import CPUS, MEMORY

_CORES: Final = "ConstrainCores"
_RAM: Final = "ConstrainRAMSpace"
_DEVICES: Final = "ConstrainDevices"


class Counted(NamedTuple):
    """Says which resources besides cores Slurm counts on this Node."""

    memory: bool
    devices: bool
    """True if Slurm knows files of devices."""


def missing(now: Mapping[str, str], counted: Counted, *, has_program: bool) -> dict[str, str]:
    """Returns the parameters of cgroup.conf(5) that are not in force for a job, each with the evidence.
    Parameter `now` has the texts of the job's cgroup files. Parameter `has_program` is True if Slurm has
    attached a device program."""
    found: dict[str, str] = {}
    if not now.get(CPUS):
        found[_CORES] = f"its {CPUS} is {'empty' if CPUS in now else 'not there'}"
    if counted.memory and now.get(MEMORY, UNLIMITED) == UNLIMITED:
        found[_RAM] = f"its {MEMORY} is {now.get(MEMORY, 'not there')}"
    if counted.devices and not has_program:
        found[_DEVICES] = "it has no device program"
    return found


def words(by_job: Mapping[str, Mapping[str, str]]) -> str:
    """Returns a message about jobs and their missing limits, or "" if no limit is missing."""
    texts: list[str] = []
    for parameter in (_CORES, _RAM, _DEVICES):
        jobs = sorted(job for job, of in by_job.items() if parameter in of)
        if jobs:
            more = f" and {len(jobs) - 1} more" if jobs[1:] else ""
            why = by_job[jobs[0]][parameter]
            texts.append(f"{parameter}=yes (cgroup.conf) is not in force for {jobs[0]}{more}: {why}")
    return "; ".join(texts)
