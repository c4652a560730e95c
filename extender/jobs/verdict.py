"""Judges a job: finds out whether the job belongs to a workload, and which parts differ from the
request.

The extender judges a job before the extender binds a Pod by the job, and before the extender ends the
job. Each caller decides which parts matter. Before a Pod is bound, more parts matter than afterwards.

A job may differ from the request for several reasons. The owner of a waiting job may change the job
(scontrol(1) update), for example to fewer CPUs or to another partition. A job_submit plugin may change a
new job. The Pod's request may change while no extender leads. If a job has more than requested, the job
does not count as altered. Slurm allocates whole cores, and an administrator may give a job more time.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple

from extender.explain.cause import Cause, Causes, Kind
from extender.jobs.claim import (
    Charged,
    JobClaim,
    charged_of,
    identity_of,
    is_of_pods,
    key_of,
)
from extender.jobs.grants import cpus_on_each, devices_taken, requested_gres
from slurm_client.model import Job, JobSpec
from wellknown.job_key import PlaceholderKey

_CLOCKS_DIFFER_S = 300
"""Maximum difference between the clocks of two machines. Slurm's authentication rejects messages that
are older than this time."""


class Ownership(Enum):
    """Owner of a job."""

    OURS = auto()
    """The workload's job, as requested."""
    ALTERED = auto()
    """The workload's job, with altered parts."""
    FOREIGN = auto()
    """A job of another owner, or of an unknown owner."""
    UNKNOWN = auto()
    """Slurm does not know the job."""


class Part(Enum):
    """A part of a job that may be altered."""

    ADMIN_COMMENT = auto()
    NAME = auto()
    SIZE = auto()
    """Nodes, CPUs or memory."""
    GRES = auto()
    PARTITION = auto()
    OWNER = auto()
    TIME_LIMIT = auto()
    RESTARTED = auto()
    SUSPENDED = auto()
    """The job is suspended, or was suspended since its start, so other jobs may have its cores."""
    DEVICES = auto()
    """A bound Pod uses devices on its Node that do not belong to the job."""


LESS = frozenset({Part.SIZE, Part.GRES, Part.PARTITION, Part.OWNER, Part.SUSPENDED})
"""If one of these parts is altered, the job has less than the Pod's request. A shorter time limit does
not belong to these parts. The owner of a waiting job may lower the limit to start sooner, and takes
nothing from other users."""


class Verdict(NamedTuple):
    """Result of `judge`: the owner of a job, and each altered part with a description of the
    difference."""

    kind: Ownership
    altered: tuple[tuple[Part, Cause], ...] = ()
    charged: Charged | None = None
    """User, account and partition of the workload's job; None for an unread job."""

    @property
    def is_ours(self) -> bool:
        """Returns True if the job is the workload's, altered or not."""
        return self.kind in (Ownership.OURS, Ownership.ALTERED)

    def has_altered(self, part: Part) -> bool:
        """Returns True if a part is altered."""
        return any(part is each for each, _ in self.altered)

    def lacks(self, *parts: Part) -> Causes:
        """Returns the differences in these parts. Without arguments, returns the differences in the
        parts of `LESS`."""
        wanted = parts or LESS
        return tuple([difference for part, difference in self.altered if part in wanted])


NOT_READ = Verdict(Ownership.UNKNOWN)
"""Verdict before the extender has read the job under an id, or if Slurm does not know the job."""
TAKEN = Verdict(Ownership.OURS)
"""Verdict after Slurm has accepted a submission under an id, before the extender has read the job."""


def judge(job: Job | None, claim: JobClaim, asked: JobSpec | None = None) -> Verdict:
    """Returns the verdict on a job. `asked` is the workload's request. If `asked` is None, the job is
    not compared with a request."""
    if job is None:
        return NOT_READ
    key = key_of(job)
    if not (_is_without_key(job, claim) if key is None else _is_of(key, job.id, claim)):
        return Verdict(Ownership.FOREIGN)
    altered = tuple(_altered(job, key, claim, asked))
    return Verdict(Ownership.ALTERED if altered else Ownership.OURS, altered, charged_of(job))


def asked_owner(asked: JobSpec) -> tuple[int | None, int | None]:
    """Returns the user and the group of a requested job. The default group has the user's number."""
    return asked.user_id, asked.user_id if asked.group_id is None else asked.group_id


# Owner


def _is_of(key: PlaceholderKey, job_id: int, claim: JobClaim) -> bool:
    same = (key.cluster, key.uid) == (claim.cluster, claim.workload.uid)
    if not same or claim.attempt not in (None, key.attempt):
        return False
    no_pods = not claim.pods  # a job without Pods is to be ended
    return no_pods or key.generation == claim.generation or is_of_pods(key, job_id, claim.pods)


def _is_without_key(job: Job, claim: JobClaim) -> bool:
    """Returns True if a job that has lost its key belongs to the workload. Without this check, the
    extender would request another job, and the Pod would have two jobs (invariant I1)."""
    if job.id not in claim.ids:
        return False
    taken = claim.taken if claim.known is None else claim.known == identity_of(job)
    return taken or _is_named(job, claim) or _runs_at_its_pods(job, claim)


def _is_named(job: Job, claim: JobClaim) -> bool:
    return job.name == claim.job_name and not _is_older(job, claim.workload.created)


def _is_older(job: Job, created: str) -> bool:
    """Returns True if a job is older than its Pod: then an earlier Pod with this name had the job."""
    if not created:
        return False
    at = datetime.fromisoformat(created).timestamp()
    return job.submit_time is None or job.submit_time + _CLOCKS_DIFFER_S < at


def _runs_at_its_pods(job: Job, claim: JobClaim) -> bool:
    """Returns True if a job runs on the nodes to which the Pods are bound. This check finds a job whose
    owner has also renamed the job."""
    nodes = claim.slurm_nodes
    there = bool(nodes) and nodes.issubset(job.nodes)
    return there and job.state.running and len(job.nodes) <= claim.workload.size


# Altered parts


def _altered(
    job: Job, key: PlaceholderKey | None, claim: JobClaim, asked: JobSpec | None
) -> Iterator[tuple[Part, Cause]]:
    if key is None:
        yield Part.ADMIN_COMMENT, Cause.of(Kind.KEY_OVERWRITTEN)
    if job.name != claim.job_name:
        yield Part.NAME, Cause.of(Kind.OTHER_NAME, name=job.name)
    if asked is not None:
        yield from _less(asked, job)
    if job.restart_count:
        yield Part.RESTARTED, Cause.of(Kind.STARTED_AGAIN)
    if job.was_suspended:
        yield Part.SUSPENDED, Cause.of(Kind.SUSPENDED)
    taken = (devices_taken(pod, job, claim.view) for pod in claim.pods if job.state.running)
    yield from ((Part.DEVICES, devices) for devices in taken if devices is not None)


def _less(asked: JobSpec, job: Job) -> Iterator[tuple[Part, Cause]]:
    yield from _too_small(asked, job) if asked.tasks is None else _too_few(asked, asked.tasks, job)
    if not _may_be_in(job.partition, asked.partition):
        where = Cause.of(Kind.OTHER_PARTITION, partition=job.partition, asked=asked.partition)
        yield Part.PARTITION, where
    user, group = asked_owner(asked)
    if user not in (None, job.user_id) or group not in (None, job.group_id):
        owner = job.user_id, job.group_id
        yield Part.OWNER, Cause.of(Kind.OTHER_USER, owner=owner, asked=(user, group))
    limit = job.time_limit_minutes
    if limit is not None and limit < (asked.time_limit_minutes or 0):
        most = Cause.of(Kind.SHORTER_TIME_LIMIT, minutes=limit, asked=asked.time_limit_minutes)
        yield Part.TIME_LIMIT, most


def _too_small(asked: JobSpec, job: Job) -> Iterator[tuple[Part, Cause]]:
    """Yields the differences in the amounts on each node."""
    if job.node_count not in (None, asked.nodes):
        yield Part.SIZE, Cause.of(Kind.OTHER_NODE_COUNT, nodes=job.node_count, asked=asked.nodes)
    allocated = cpus_on_each(job, asked.nodes)
    counts = (allocated, None if job.state.running else job.cpus_per_node)
    cpus = min((n for n in counts if n is not None), default=asked.cpus)
    if cpus < asked.cpus:
        yield Part.SIZE, Cause.of(Kind.FEWER_CPUS, cpus=cpus, asked=asked.cpus)
    memory = _memory(job, allocated)
    if memory is not None and 0 < memory < asked.memory_mb:  # 0 means the whole node's memory
        yield Part.SIZE, Cause.of(Kind.LESS_MEMORY, memory_mb=memory, asked=asked.memory_mb)
    given: Counter[str] = requested_gres(job)
    for name, count in asked.gres:
        if given[name] < count:
            yield Part.GRES, Cause.of(Kind.LESS_GRES, number=given[name], name=name, asked=count)


def _too_few(asked: JobSpec, tasks: int, job: Job) -> Iterator[tuple[Part, Cause]]:
    """Yields the differences in the number of packed tasks, and in the amounts of all tasks together.
    For a waiting job, Slurm only estimates the number of nodes."""
    if (job.tasks or tasks) < tasks:
        yield Part.SIZE, Cause.of(Kind.FEWER_TASKS, tasks=job.tasks, asked=tasks)
    least = asked.of_tasks(tasks)
    counts = (
        job.cpus_allocated,
        None if job.state.running else (job.cpus_per_node or asked.cpus) * tasks,
    )
    cpus = min((n for n in counts if n is not None), default=least.cpus)
    if cpus < least.cpus:
        yield Part.SIZE, Cause.of(Kind.FEWER_CPUS, cpus=cpus, asked=least.cpus)
    memory = sum(job.memory_allocated_mb) or _memory(job, (job.cpus_per_node or 0) * tasks)
    if memory is not None and 0 < memory < asked.memory_mb * tasks:
        yield Part.SIZE, Cause.of(Kind.LESS_MEMORY, memory_mb=memory, asked=asked.memory_mb * tasks)
    given = requested_gres(job)
    for name, count in asked.gres:
        if given[name] < count:
            yield Part.GRES, Cause.of(Kind.LESS_GRES, number=given[name], name=name, asked=count)


def _memory(job: Job, cpus: int | None) -> int | None:
    if job.memory_mb is not None or job.memory_per_cpu_mb is None:
        return job.memory_mb
    return job.memory_per_cpu_mb * (cpus or 0)


def _may_be_in(partition: str, asked: str | None) -> bool:
    """Returns True if a job's partitions are among the requested partitions. If no partition was
    requested, every partition is allowed, because Slurm or a job_submit plugin chooses the partition."""
    return asked is None or set(partition.split(",")) <= set(asked.split(","))
