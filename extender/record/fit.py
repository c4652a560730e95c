"""Whether a job has what its Pod asks for.

A job's owner may change it while it waits (scontrol(1) update: fewer CPUs, another partition), and a Pod
may change while no extender leads. What a job has more than was asked for is no harm: Slurm gives whole
cores, and an administrator may give a job more time.
"""

from collections import Counter
from collections.abc import Iterator

from slurm_client import gres
from slurm_client.model import Grant, Job, JobSpec

_PREFIXES = ("gres/", "gres:")


def owner_of(asked: JobSpec) -> tuple[int | None, int | None]:
    """Returns whose a job will be: its user's number is its group's where none is named."""
    return asked.user_id, asked.user_id if asked.group_id is None else asked.group_id


def misfit(asked: JobSpec, job: Job) -> str | None:
    """Returns what a job lacks of what was asked for, in words for the Pod's author; None: nothing."""
    return "; ".join(_misfits(asked, job)) or None


def covers(grant: Grant, asked: JobSpec) -> bool:
    """Tells whether what was granted at once has the devices that were asked for."""
    return all(_has(each, name) >= count for each in _on_each(grant) for name, count in asked.gres)


def _has(devices: Counter[str], name: str) -> int:
    """Returns how many of a GRES there are among a job's: of parts of GPUs Slurm tells no type."""
    bare = name.partition(":")[0]
    return devices[bare if bare in gres.SHARED else name]


def _on_each(grant: Grant) -> list[Counter[str]]:
    """Returns how many devices there are on each node."""
    by_node = len(grant.gres) == len(grant.nodes) > 0
    return [gres.counts(each) for each in (grant.gres if by_node else [",".join(grant.gres)])]


def ends_earlier(asked: JobSpec, job: Job) -> str | None:
    """Returns in words that a job has less time than was asked for; None: it has enough.

    Not part of `misfit`: who lowers the limit of a job that waits (scontrol(1)) may want it to start
    sooner, and takes nothing from anybody. It tells that a job is from before its Pod was changed.
    """
    limit = job.time_limit_minutes
    if limit is None or limit >= (asked.time_limit_minutes or 0):
        return None
    return f"its time limit is {limit} minutes instead of {asked.time_limit_minutes}"


def _misfits(asked: JobSpec, job: Job) -> Iterator[str]:
    if job.node_count not in (None, asked.nodes):
        yield f"it is for {job.node_count} nodes instead of {asked.nodes}"
    yield from _too_small(asked, job)
    if not _may_be_in(job.partition, asked.partition):
        yield f"it is in partition {job.partition} instead of {asked.partition}"
    user, group = owner_of(asked)
    if user not in (None, job.user_id) or group not in (None, job.group_id):
        yield f"it is of user {job.user_id} and group {job.group_id} instead of {user} and {group}"


def _too_small(asked: JobSpec, job: Job) -> Iterator[str]:
    cpus_allocated = None if job.cpus_allocated is None else job.cpus_allocated // asked.nodes
    told = (cpus_allocated, None if job.state.running else job.cpus_per_node)
    cpus = min((n for n in told if n is not None), default=asked.cpus)
    if cpus < asked.cpus:
        yield f"it has {cpus} CPUs instead of {asked.cpus}"
    memory = _memory(job, cpus_allocated)
    if memory is not None and 0 < memory < asked.memory_mb:  # 0 is all of the node's
        yield f"it has {memory} MiB of memory instead of {asked.memory_mb}"
    given = gres_of(job)
    for name, count in asked.gres:
        if given[name] < count:
            yield f"it has {given[name]} of GRES {name} instead of {count}"


def _memory(job: Job, cpus: int | None) -> int | None:
    if job.memory_mb is not None or job.memory_per_cpu_mb is None:
        return job.memory_mb
    return job.memory_per_cpu_mb * (cpus or 0)


def gres_of(job: Job) -> Counter[str]:
    """Returns what a job asks for on each node; of a job that has devices, no more than these."""
    elements = (element.strip().replace("=", ":") for element in job.tres_per_node.split(","))
    names = ",".join(e[len(p) :] for e in elements for p in _PREFIXES if e.startswith(p))
    asked = gres.counts(names)
    if not job.gres:
        return asked
    given = _on_each(job.grant)
    return Counter({name: min(n, *(_has(each, name) for each in given)) for name, n in asked.items()})


def _may_be_in(partition: str, asked: str | None) -> bool:
    """Where none was asked for, Slurm, or a job_submit plugin of the site's, chooses."""
    return asked is None or set(partition.split(",")) <= set(asked.split(","))
