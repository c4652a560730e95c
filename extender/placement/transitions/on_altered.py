"""Reactions of a placeholder to a job that differs from the request. The extender binds no Pod by such a
job.

Each function returns the next version of the record.
"""

from extender.explain.cause import Cause, Causes, Kind
from extender.jobs.claim import identity_of
from extender.jobs.tracked_job import Owner
from extender.jobs.verdict import Part, Verdict
from extender.placement.transitions.moves import granted
from extender.record.config import Context
from extender.record.placeholder import Placeholder
from extender.record.states import UNBOUND, State
from extender.record.why_invalid import WhyInvalid
from slurm_client.model import Job
from slurm_client.ownership import NOBODY
from wellknown.names import Reason


def recognised(record: Placeholder, job: Job, verdict: Verdict) -> Placeholder:
    """Returns the record after the verdict on the job under its id."""
    if not verdict.is_ours:
        return record.unclaimed()
    known = record.with_job(verdict=verdict)
    return known if known.job.has_lost_key else known.with_job(identity=identity_of(job))


def altered(record: Placeholder, job: Job, at: Context, *, first: bool) -> Placeholder | None:
    """SUBMITTING, QUEUED, ALLOCATED: returns the record after a read of its live job, if the job is
    altered. Returns None if the job has no less than requested, if Pods may be bound by the job, or if
    the job holds no cores. `first` is True if the extender submitted the job, and reads the job for the
    first time."""
    if record.state not in UNBOUND or job.state.ended or job.state.suspended:
        return None
    if record.job.has_lost_key and record.job.identity is None:
        return _without_key(record, job, at)
    if not _has_owner(job, record.job.asked.owner):
        return _disowned(record, job, at)
    lacks = record.job.verdict.lacks()
    if not lacks:
        return None
    if first:
        return _altered_at_once(record, job, lacks, at)
    if record.state is State.SUBMITTING:  # `outdated` comes first
        return None
    return replaced_job(record, job, lacks, at)


def outdated(record: Placeholder, job: Job) -> Causes:
    """SUBMITTING: returns the problems of an existing job that no longer fits the Pod, because the Pod,
    the policy or the job has changed. Empty if the job fits, or if a Binding by the job may be under
    way."""
    pods, request, verdict = record.pods, record.request, record.job.verdict
    carried = {pod.scheduling.allocation.job_id for pod in pods if pod.scheduling.allocation is not None}
    if job.state.running and job.id in carried:
        return ()
    obstacle = next((pod.scheduling.obstacle for pod in pods if pod.scheduling.obstacle), None)
    if job.state.pending and request.problems:
        return (Cause.of(Kind.INVALID_REQUEST, problems=request.problems),)
    if job.state.pending and obstacle:
        return (obstacle,)
    return verdict.lacks() or (verdict.lacks(Part.TIME_LIMIT) if job.state.pending else ())


def replaced_job(record: Placeholder, job: Job, lacks: Causes, at: Context) -> Placeholder:
    """Returns the record of a job that is replaced by the next attempt's job."""
    return _given_back(record, job, Cause.of(Kind.JOB_ALTERED, job=job.id, lacks=lacks), at)


def refused(record: Placeholder, job: Job, why: WhyInvalid, reason: str, at: Context) -> Placeholder:
    """Returns the record of a job that the extender ends. The extender requests another job later,
    because the cause may pass. `reason` is the condition's reason until the job has ended."""
    record = record.with_rejections(forbidden_because=why._replace(asks_again=True))
    return _given_back(record, job, why.shown(reason), at)


def _given_back(record: Placeholder, job: Job, cause: Cause, at: Context) -> Placeholder:
    """Returns the record of a job that the extender gives back. Before the extender has ended a running
    job, another replica may bind a Pod by the job. Therefore the record first gets the grant of a
    running job."""
    if job.state.running:
        held = record if record.state is State.ALLOCATED else record.move(State.ALLOCATED, at.now)
        record = granted(held, job.id, job.grant, at)
    if record.state is State.REPLACING:  # no Node stands for a node of the job
        return record
    return record.replaced(at.now, cause)


def _altered_at_once(record: Placeholder, job: Job, lacks: Causes, at: Context) -> Placeholder:
    """Returns the record of a job that was altered before its first read. After the first such job, the
    job's owner may be the reason, and the extender replaces the job. After two such jobs in a row, a
    plugin is the reason, and the extender rejects the Pod for a while. Each further job would be
    altered, too, and might preempt other jobs."""
    record = record.with_mistrust(altered=record.job.mistrust.altered + 1)
    if record.job.mistrust.altered < 2:
        return replaced_job(record, job, lacks, at)
    cause = Cause.of(Kind.ALTERED_AT_ONCE, job=job.id, lacks=lacks)
    return _forbidden(record, job, cause, Reason.SLURM_JOB_CHANGED, at)


def _without_key(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """Rejects the Pods of a new job without a key, because no key would show the owner of the job
    later."""
    cause = Cause.of(Kind.WITHOUT_KEY, job=job.id)
    return _forbidden(record, job, cause, Reason.SLURM_JOB_UNSIGNED, at)


def _forbidden(record: Placeholder, job: Job, cause: Cause, reason: str, at: Context) -> Placeholder:
    """Returns the record of a job that the extender ends. The Pod is rejected for a while, because an
    administrator must fix Slurm's configuration."""
    why = WhyInvalid(cause, at.now + at.rules.altered_job_pause)
    return _given_back(record.with_rejections(forbidden_because=why), job, why.shown(reason), at)


def _has_owner(job: Job, owner: Owner) -> bool:
    """Returns True if the job has the requested owner. slurmctld ignores the owner of some requests. If
    slurmctld cannot resolve the owner, slurmctld may run the job as the user `nobody`, without an error
    (24.11, 26.05)."""
    user, group = owner
    return user in (None, job.user_id) and group in (None, job.group_id)


def _disowned(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """Returns the record of a job with the wrong owner. The extender waits before the next request,
    because each request may create another job of the wrong user."""
    user, group = record.job.asked.owner
    if job.user_id == NOBODY and user is not None:
        why = WhyInvalid(Cause.of(Kind.UNKNOWN_USER, user=user))
        return refused(record, job, why, Reason.WRONG_OWNER, at)
    cause = Cause.of(
        Kind.OTHER_OWNER, job=job.id, owner=(job.user_id, job.group_id), asked=(user, group)
    )
    return refused(record, job, WhyInvalid(cause), Reason.WRONG_OWNER, at)
