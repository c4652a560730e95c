"""Moves of a placeholder that more than one kind of news can cause. Each function returns the next
version of the record."""

from collections.abc import Iterable, Iterator, Sequence

from extender.explain.cause import Cause, Kind
from extender.jobs.phase import Phase
from extender.jobs.slots import NodeOf, in_topology, nodes_by, slots
from extender.pod_request.pod import Pod
from extender.record.config import Context
from extender.record.ends import PLACE_AGAIN, end_of
from extender.record.members import with_slots
from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.job_state import JobState
from slurm_client.model import Grant, Job, JobSpec
from wellknown.allocation import Allocation


def slots_of(
    record: Placeholder, job: Job, at: Context, pods: Iterable[Pod] = ()
) -> Iterator[Allocation]:
    """Yields the slots of a record's job. `pods` are Pods whose Nodes are preferred (`nodes_by`)."""
    grant, size = in_topology(job.grant, at.view), record.workload.size
    return slots(grant, job.id, record.request.job, size, nodes_by(at.view, pods))


def granted(record: Placeholder, job_id: int, grant: Grant, at: Context) -> Placeholder:
    """Takes a record in ALLOCATED, and returns the record with the slots of the job's grant. If the
    grant is unusable, the allocation is given back."""
    size, node_of, asked = record.workload.size, nodes_by(at.view), record.request.job
    of_job = tuple(slots(in_topology(grant, at.view), job_id, asked, size, node_of))
    unusable = _unusable(grant, of_job, asked, size, node_of)
    if unusable is not None:
        return record.replaced(at.now, unusable)
    members = with_slots(record.members, of_job)
    verified = record._replace(members=members).with_phase(Phase.RUNNING, at.now)
    return verified.with_job(unread=False).with_retry(not_before=0.0, failures=0)


def _unusable(
    grant: Grant, of_job: Sequence[Allocation], asked: JobSpec, members: int, node_of: NodeOf
) -> Cause | None:
    """Returns the problem of a grant without a slot for each member; None for a usable grant."""
    nodes = [node_of(name) for name in grant.nodes]
    if None in nodes:
        unknown = [name for name, node in zip(grant.nodes, nodes, strict=True) if node is None]
        return Cause.of(Kind.NODES_UNKNOWN, nodes=tuple(unknown))
    if len(set(nodes)) < len(nodes):
        return Cause.of(Kind.NODES_SHARED, nodes=grant.nodes)
    if len(of_job) < members and asked.tasks and asked.gres and not grant.gres:
        gres = tuple(name for name, _ in asked.gres)
        return Cause.of(Kind.GRANT_WITHOUT_GRES, nodes=grant.nodes, gres=gres)
    if len(of_job) < members:
        return Cause.of(Kind.GRANT_INDIVISIBLE, nodes=grant.nodes, pods=members)
    return None


def ask_again(record: Placeholder, at: Context, cause: Cause | None = None) -> Placeholder:
    """Returns the record of running Pods whose job is lost: Slurm does not know the job, or ended the
    job because its node failed. The Pods continue to run (invariant I5), and the extender requests the
    job again."""
    cause = cause or Cause.of(Kind.JOB_LOST_AND_REPEATED, job=record.job.id)
    reported = record._replace(cause=cause).with_retry(not_before=0.0)
    return reported.with_phase(Phase.ASKED, at.now).with_job(unread=False)


def in_doubt(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record with a doubt about the job. The extender reads the job next."""
    if record.state is State.QUEUED:
        return record.move(State.SUBMITTING, at.now).with_job(unread=True)
    if record.job.phase is Phase.SUSPECT:
        return record
    return record.with_phase(Phase.SUSPECT, at.now).with_retry(not_before=0.0)


def ended(record: Placeholder, state: JobState, at: Context) -> Placeholder:
    """Returns the record after the extender found that the job no longer holds its resources."""
    cause = end_of(record.job.id, state)
    again = record.state is not State.BOUND and (state.base in PLACE_AGAIN or not state.ended)
    if state.ended:
        record = record.with_phase(Phase.ENDED, at.now)
    return record.replaced(at.now, cause) if again else record.move(State.EVICTING, at.now, cause=cause)


def over(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record after the end of the job became known."""
    return record.with_phase(Phase.ENDED, at.now)


def look_again(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record with the time of the next read of the job. At first the extender reads the job
    soon, because a job in configuration runs soon. The pauses grow up to `report_after` seconds."""
    pause = max(at.rules.shortest_read_pause, (at.now - record.since) / 2)
    return record.with_retry(not_before=at.now + min(pause, at.rules.report_after))


def held_up(record: Placeholder, cause: Cause, at: Context) -> Placeholder:
    """Returns the record with the cause of the Pod's wait. The extender reads the job again later."""
    return record._replace(cause=cause).with_retry(not_before=at.now + at.rules.reason_interval)
