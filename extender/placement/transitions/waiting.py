"""Explains why a Pod's job waits in Slurm, and how long a Pod has waited."""

from dataclasses import replace

from extender.explain.cause import Cause, Kind
from extender.explain.wording import cut
from extender.node_view.node_hardware import amounts, too_large
from extender.pod_request.job_request import Request
from extender.record.config import Context
from slurm_client.model import Job
from wellknown.allocation import Allocation

_LONGEST_NAME, _LONGEST_REMARK = 100, 300
_HELD, _TOO_LONG = "JobHeldUser", "PartitionTimeLimit"
TOO_LARGE = frozenset({"PartitionConfig", "BadConstraints", "PartitionNodeLimit", "MaxMemPerLimit"})
"""Slurm's reasons that may mean that no node is large enough."""


def why_it_waits(job: Job, request: Request, at: Context) -> Cause:
    """Returns why a pending job waits, according to Slurm's pending reason. Slurm's plan for the job may
    change each time Slurm's scheduler evaluates the job, so a changed plan alone is no news
    (`Cause.outlook`)."""
    large = _too_large(job, request, at)
    if large is not None:
        cause = Cause.of(Kind.WAITS_TOO_LARGE, job=_waiting(job), word=job.reason, large=large)
        return replace(cause, reason=large.reason)
    why, asks = _why(job, request, at), amounts(request.job)
    cause = Cause.of(Kind.WAITS, job=_waiting(job), word=job.reason, why=why, asks=asks)
    return replace(cause, reason=job.reason, outlook=_plan(job))


def why_held(job: Job, request: Request, at: Context) -> Cause:
    """Returns why the extender ends a job: Slurm holds the job, because no node can run the job."""
    waits = why_it_waits(job, request, at)
    kind = Kind.HELD if waits.kind is Kind.WAITS else Kind.HELD_TOO_LARGE
    return Cause(kind, kind.reason if kind is Kind.HELD else waits.reason, waits.facts)


def granted(allocation: Allocation, waited: float | None, ours: float) -> Cause:
    """Returns the cause for a Pod that waited and got nodes. `waited` is the Pod's waiting time in
    seconds, or None if not known. `ours` is the extender's part of this time."""
    job, node = allocation.job_id, allocation.node
    return Cause.of(Kind.GRANTED, job=job, node=node, waited_s=waited, ours_s=ours)


def _waiting(job: Job) -> Cause:
    partition, submitted = cut(job.partition, _LONGEST_NAME), job.submit_time
    since = None if submitted is None else submitted // 60 * 60  # messages show minutes
    return Cause.of(Kind.WAITING_JOB, job=job.id, partition=partition, since=since)


def _too_large(job: Job, request: Request, at: Context) -> Cause | None:
    if job.reason not in TOO_LARGE:
        return None
    return too_large(request.job, job.partition, at.hardware, at.view.partitions)


def _why(job: Job, request: Request, at: Context) -> Cause:
    """Returns a more exact reason, if the Pod's author holds the job or if the time limit is too long.
    Otherwise returns the meaning of Slurm's reason."""
    if job.reason == _HELD and request.job.priority == 0:
        return Cause.of(Kind.HELD_BY_AUTHOR)
    partition, limit = at.view.partitions.get(job.partition), job.time_limit_minutes
    most = None if partition is None else partition.max_time_minutes
    if job.reason == _TOO_LONG and limit is not None and most is not None and limit > most:
        return Cause.of(Kind.TIME_LIMIT_TOO_LONG, limit_s=60 * limit, most_s=60 * most)
    return Cause.of(Kind.PENDING_REASON, word=job.reason)


def _remark(job: Job) -> str:
    """Returns Slurm's own longer message. The message is cut, because the extender keeps a message for
    each waiting Pod."""
    return cut(" ".join(job.state_description.split()), _LONGEST_REMARK)


def _plan(job: Job) -> Cause | None:
    """Returns when Slurm expects the job to start, and Slurm's own longer message. Returns None if Slurm
    reports neither of the two."""
    start, remark = None if job.held else job.start_time, _remark(job)
    if start is None and not remark:
        return None
    return Cause.of(Kind.PLAN, start=start, since=job.submit_time, remark=remark)
