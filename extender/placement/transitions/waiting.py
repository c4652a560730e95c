"""Why a Pod's job waits in Slurm, and for how long it has waited, in words for the Pod's author.

Times are told in UTC: whoever reads them may be anywhere. What differs from one look at a job to the
next (when Slurm expects it to start) is told, and is no news by itself (`ConditionReason.outlook`).
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from extender.explain.pending_reasons import explained
from extender.explain.wording import cut
from extender.node_view.node_hardware import amounts, too_large
from extender.pod_request.job_request import Request
from extender.record.condition_reason import ConditionReason
from extender.record.config import Context
from slurm_client.model import Job
from wellknown.allocation import Allocation
from wellknown.names import Reason

_HELD, _TOO_LONG = "JobHeldUser", "PartitionTimeLimit"
TOO_LARGE = frozenset({"PartitionConfig", "BadConstraints"})
"""Slurm's reasons that may say that no node is so large."""
_DAY_S = 86_400
_FAR_S = 90 * _DAY_S
"""Slurm's backfill scheduler takes a job without a time limit to last 365 days: a start that is as far
away as this is planned behind such a job."""
_LAST = 0xFFFF_FFFF  # Slurm's own times, as far as they are times
_LONGEST_NAME, _LONGEST_REMARK = 100, 300
_UNITS = (("day", _DAY_S), ("h", 3600), ("min", 60), ("s", 1))


def why_it_waits(job: Job, request: Request, at: Context) -> ConditionReason:
    """Returns why a job that Slurm holds pending waits, as its reason says."""
    since = "" if job.submit_time is None else f" since {_clock(job.submit_time)} UTC"
    where = f"in partition {cut(job.partition, _LONGEST_NAME)}{since}"
    stands = "waits" if job.submit_time is None else "has waited"
    large = job.reason in TOO_LARGE and too_large(
        request.job, job.partition, at.hardware, at.view.partitions
    )
    if large:
        return ConditionReason(
            Reason.TOO_LARGE, f"{large}. Slurm job {job.id} {stands} {where} ({job.reason})."
        )
    why = f"{_sentence(job, request, at)} ({job.reason})"
    words = f"Slurm job {job.id} {stands} {where}: {why}; it asks for {amounts(request.job)}."
    outlook = "".join(f" {each}" for each in _outlook(job))
    return ConditionReason(job.reason, words, outlook=outlook, normal=True)


def granted(allocation: Allocation, waited: float | None, ours: float) -> ConditionReason:
    """Returns what a Pod that waited got: `waited` is for how many seconds in all, None where that is
    not known, and `ours` how long it took the extender to hand on what Slurm had given."""
    words = f"Slurm job {allocation.job_id} runs on Node {allocation.node}"
    if waited is not None:
        whole = in_words(max(waited, ours))
        words += f"; the Pod waited {whole}, {in_words(ours)} of it for slurm-extender"
    return ConditionReason(Reason.GRANTED, words, normal=True)


def in_words(seconds: float) -> str:
    """Returns how long something lasts, in its two largest units: "4 min 10 s", "30 ms"."""
    if seconds < 1:
        return f"{int(1000 * seconds + 1e-6)} ms"
    left, parts = int(seconds), list[str]()
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count and len(parts) < 2:
            parts.append(f"{count} {unit}s" if unit == "day" and count > 1 else f"{count} {unit}")
        elif parts:  # what is smaller than a unit that is not there says nothing
            break
    return " ".join(parts)


def _sentence(job: Job, request: Request, at: Context) -> str:
    """Whose doing it is where that is known, and what Slurm's word means where it is not."""
    if job.reason == _HELD and request.job.priority == 0:
        return 'its author holds it by the annotation priority: "0", until an admin of Slurm releases it'
    partition, limit = at.view.partitions.get(job.partition), job.time_limit_minutes
    most = None if partition is None else partition.max_time_minutes
    if job.reason == _TOO_LONG and limit is not None and most is not None and limit > most:
        return (
            f"its time limit of {in_words(60 * limit)} is longer than the {in_words(60 * most)}"
            " that its partition allows"
        )
    return explained(job.reason).sentence


def _outlook(job: Job) -> Iterator[str]:
    """When Slurm expects the job to start, and Slurm's own longer words, if there are any."""
    yield from _start(job)
    remark = " ".join(job.state_description.split())
    if remark:
        yield f"Slurm says: {cut(remark, _LONGEST_REMARK).rstrip('.')}."


def _start(job: Job) -> Iterator[str]:
    start, since = job.start_time, job.submit_time
    if start is None or job.held:
        return
    if since is not None and start - since > _FAR_S:
        yield "Slurm cannot plan when it starts: jobs before it have no time limit, or one of months."
    else:
        same_day = since is not None and start // _DAY_S == since // _DAY_S
        yield f"Slurm expects it to start about {_clock(start)[-5 if same_day else 0 :]} UTC."


def _clock(unix_seconds: int) -> str:
    """Returns a time as "24 Nov 13:11"."""
    return datetime.fromtimestamp(min(unix_seconds, _LAST), UTC).strftime("%-d %b %H:%M")
