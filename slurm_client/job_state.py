"""States of jobs, as Slurm reports them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

# Base states of a job: JOB_STATE_BASE in Slurm's slurm.h (enum job_states). Each job has exactly one
# base state.
_LIVE = frozenset({"PENDING", "RUNNING", "SUSPENDED"})
_TERMINAL = frozenset(
    {
        *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"),
        *("DEADLINE", "OUT_OF_MEMORY", "LAUNCH_FAILED"),
    }
)
# JOB_STATE_FLAGS with which a RUNNING job cannot use its resources, because nodes of the job boot, a
# prolog runs, the job completes, or the job is stopped or moved.
_NOT_USABLE = frozenset(
    {
        *("CONFIGURING", "COMPLETING", "STOPPED", "POWER_UP_NODE", "RECONFIG_FAIL", "REQUEUED"),
        *("REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "REVOKED", "SPECIAL_EXIT", "LAUNCH_FAILED"),
    }
)

UNKNOWN_STATE = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class JobState:
    """A job's state: one base state, and flags. For example, the base is RUNNING, and a flag is
    CONFIGURING.

    An unknown name is kept as a flag. If no name is a known base, the base is "UNKNOWN". Such a job
    counts as neither running, pending, suspended nor ended.
    """

    base: str
    flags: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, names: Iterable[str] | str) -> Self:
        """Reads a state from slurmrestd's list of strings, or from a text like "RUNNING,CONFIGURING"."""
        listed = names.split(",") if isinstance(names, str) else names
        upper = [name.strip().upper() for name in listed if name.strip()]
        base = next((name for name in upper if name in _LIVE or name in _TERMINAL), UNKNOWN_STATE)
        return cls(base, frozenset(name for name in upper if name != base))

    @property
    def running(self) -> bool:
        """True if the job can use its resources now."""
        return self.base == "RUNNING" and not (self.flags & _NOT_USABLE)

    @property
    def pending(self) -> bool:
        """True if the job waits. Requeued jobs, held jobs, and jobs that still complete an earlier run
        also wait."""
        return self.base == "PENDING"

    @property
    def suspended(self) -> bool:
        """True for a job paused by an administrator, by gang scheduling, or by a SIGSTOP."""
        return self.base == "SUSPENDED" or (self.base == "RUNNING" and "STOPPED" in self.flags)

    @property
    def ended(self) -> bool:
        """True if the base state is terminal. With the flag COMPLETING, Slurm still cleans up after the
        job."""
        return self.base in _TERMINAL

    @property
    def completing(self) -> bool:
        """True while Slurm cleans up an ended or requeued job. The cleanup includes EpilogSlurmctld.
        Slurm may already have given the job's nodes to other jobs."""
        return "COMPLETING" in self.flags

    @property
    def holds_nodes(self) -> bool:
        """True if Slurm gives this job's resources to no other job. While this job completes, Slurm may
        already have given the resources away."""
        return self.base == "RUNNING" and not self.completing

    @property
    def text(self) -> str:
        """The state as squeue shows it: "RUNNING+CONFIGURING"."""
        return "+".join([self.base, *sorted(self.flags)])

    def __str__(self) -> str:
        return self.text


UNREAD = JobState(UNKNOWN_STATE)
"""The state of a job if the job's entry in Slurm's reply cannot be read. Slurm may know the job."""


class AllStates(dict[int, JobState]):
    """States of jobs by id. The tasks of job arrays are left out, because Slurm gives a task two
    numbers, and no placeholder job is a task."""

    entries: int = 0
    """Number of entries in Slurm's reply, including the tasks of arrays."""
    malformed: tuple[str, ...] = ()
    """The problem of each unreadable entry. If the id in the entry is readable, the job's state is
    UNREAD."""
    nameless: int = 0
    """Number of entries without a readable id. Any job that is absent from this dict may be in such an
    entry."""
    waiting: Mapping[int, int] = MappingProxyType({})
    """The waiting jobs of all users, by id. The value is 1 for a job, and the number of waiting tasks
    for an array."""
