"""Finds the next effects of a placeholder. The job gets one effect at a time. Each Pod also gets one
effect at a time.

The record alone determines the next effect. Therefore the code keeps no memory of failures, and
continues in the same way after a restart.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from extender.explain.cause import Cause, Kind
from extender.explain.sentences import sentence
from extender.jobs.grants import changed_slot
from extender.jobs.phase import Phase
from extender.placement.nodes.eligible_nodes import excluded_nodes_of, is_outdated, why_rejected
from extender.placement.transitions.lingering import hold
from extender.pod_request.pod_end import replaced_in_words, with_words
from extender.record.config import Context
from extender.record.events import (
    CancelJob,
    CheckDepartures,
    Effect,
    EvictPod,
    ExcludeNodes,
    OnPod,
    ReadJob,
    RecordJobId,
    Submit,
    WriteAllocation,
    WriteAttempt,
)
from extender.record.member import Member
from extender.record.members import is_bound, shows_rejection
from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.model import HIGHEST_PRIORITY
from wellknown.allocation import Allocation
from wellknown.job_key import job_name
from wellknown.names import Reason


def ask(record: Placeholder, at: Context) -> Effect | None:
    """SUBMITTING: asks Slurm for the job, or reads the job of an earlier request."""
    job_id = record.job.known_id
    if record.job.unread:
        return ReadJob(record.uid, job_id)
    comment, nodes = str(record.key(at.rules.cluster)), excluded_nodes_of(record, at).nodes
    job = replace(record.request.job, admin_comment=comment, excluded_nodes=nodes)
    return Submit(record.uid, job_id, job, record.job.asked.immediate)


def ask_why(record: Placeholder, at: Context) -> Effect | None:
    """QUEUED: excludes newly closed Nodes in Slurm, or reads why the job waits."""
    job_id = record.job.known_id
    if is_outdated(record, at):
        return ExcludeNodes(record.uid, job_id, excluded_nodes_of(record, at).nodes)
    return ReadJob(record.uid, job_id, for_words=True)


def read_grant(record: Placeholder, _at: Context) -> Effect | None:
    """ALLOCATED: reads the job for its grant. Later, if kube-scheduler rejects a Node, finds out whether
    Pods are leaving the Node."""
    job_id = record.job.known_id
    if record.job.unverified:
        return ReadJob(record.uid, job_id)
    if not record.members.count(shows_rejection):
        return None
    rejected = filter(shows_rejection, record.members)
    first = next((m for m in rejected if m.rejection_cleared and m.rejects(job_id)), None)
    if first is None or first.slot is None:
        return None
    if not all(each.write.done or each.pod.life.node is not None for each in record.members):
        return None
    return CheckDepartures(record.uid, first.slot.node)


def write_allocations(record: Placeholder, at: Context) -> Iterator[OnPod]:
    """ALLOCATED: writes the slots onto the Pods."""
    none = record.job.unverified or record.write_done
    for member in () if none else _due(record.members, at.now):
        if not (member.write.done or is_bound(member)) and member.slot is not None:
            yield _write_allocation(record, member, member.slot, at)


def keep(record: Placeholder, at: Context) -> Effect | None:
    """BOUND: requests a lost job again, or reads a doubtful job."""
    job_id = record.job.known_id
    if record.job.phase is Phase.ASKED:
        return _submit_again(record, job_id, at)
    return ReadJob(record.uid, job_id) if record.job.unverified else None


def record_job(record: Placeholder, at: Context) -> Iterator[OnPod]:
    """BOUND: writes the running job and its slots onto the Pods. Also places a Pod that replaces a
    member, after the containers of the member have ended."""
    settled = record.job.phase is not Phase.ASKED and not record.job.unverified
    for member in _due(record.members, at.now) if settled else ():
        if member.pod.life.node is None:
            if member.slot is not None and not (member.written or record.lingers_on(member.slot)):
                yield _write_allocation(record, member, member.slot, at)
        elif _is_outdated(record, member):
            now = changed_slot(member.pod, member.slot)
            yield RecordJobId(record.uid, member.pod, record.job.known_id, record.attempt, now)


def _is_outdated(record: Placeholder, member: Member) -> bool:
    pod = member.pod
    if pod.scheduling.job_id not in (None, record.job.id) or pod.scheduling.attempt != record.attempt:
        return True
    return changed_slot(pod, member.slot) is not None


def replace_job(record: Placeholder, at: Context) -> Effect | None:
    """REPLACING: ends the job after the Pods have the number of the next attempt."""
    return release(record, at) if record.write_done or _is_ended_first(record) else None


def write_attempts(record: Placeholder, at: Context) -> Iterator[OnPod]:
    """REPLACING: writes the number of the next attempt onto the Pods."""
    if record.write_done or _is_ended_first(record):
        return
    cause = record.cause
    if cause is not None and cause.reason == Reason.NODE_REJECTED and record.rejections.nodes:
        cause = why_rejected(record)  # with kube-scheduler's latest messages
    for member in _due(record.members, at.now):
        if not member.write.done:
            yield WriteAttempt(record.uid, member.pod, record.attempt + 1, cause)


def release(record: Placeholder, at: Context) -> Effect | None:
    """RELEASING: ends the job. The extender cannot restore a job that was ended by mistake (invariant
    I5)."""
    job_id = record.job.id
    if record.job.over:
        return None
    return None if job_id is None else _end(record, job_id, at)


def evict(record: Placeholder, at: Context) -> Iterator[OnPod]:
    """EVICTING: deletes each Pod. Other clients may write to a Pod all the time. Then the extender
    deletes a bound Pod in any version, because a bound Pod stays bound and no write restores its job.
    The extender deletes an unbound Pod only in the same attempt, because another replica may have begun
    a new attempt."""
    cause = record.cause
    for member in _due(record.members, at.now) if cause is not None else ():
        if cause is None or (member.write.done and member.pod.leaving):
            continue
        late, bound = member.outwritten, member.pod.life.node is not None
        yield EvictPod(
            record.uid,
            member.pod,
            cause,
            in_any_version=late and bound,
            in_this_attempt=late and not bound,
            cancelled=record.job.id if cause.reason == Reason.SLURM_JOB_CANCELLED else None,
        )


def _due(members: Iterable[Member], now: float) -> list[Member]:
    """Returns the members with Pods to which the extender may write now."""
    return [m for m in members if not m.write.in_flight and m.write.not_before <= now]


def _is_ended_first(record: Placeholder) -> bool:
    """Returns True if the job may be ended before the next attempt is written onto the Pod."""
    return record.kept_unbound and record.job.id is not None and not record.job.over


def _end(record: Placeholder, job_id: int, at: Context) -> Effect | None:
    job = record.job
    if not job.is_ours or job.unread:
        return ReadJob(record.uid, job_id)
    if record.lingering:
        return None if record.write_done else hold(record, job_id, at.now)
    # If the job was renamed, the extender has just read the job. The owner may rename the job again, so
    # the cancellation gives no name.
    name = None if job.mistrust.renamed else job_name(record.workload.namespace, record.workload.name)
    first = _is_ended_first(record)
    return CancelJob(record.uid, job_id, name, _last_words(record, again=first), comment_first=first)


def _last_words(record: Placeholder, *, again: bool) -> str:
    """Returns the comment of a cancelled job. `again` is True if the Pod is to have another job."""
    comment, why = record.request.job.comment, sentence(record.cause or Cause.of(Kind.JOB_NOT_NEEDED))
    if again:  # only the comment shows a later leader that the extender ended the job
        return replaced_in_words(why, comment)
    ends = (pod.life.end for pod in record.pods if pod.life.end)
    return with_words(comment, next(ends, why))


def _submit_again(record: Placeholder, job_id: int, at: Context) -> Submit | None:
    """Returns the submission of another job for a running Pod. The job requires the Pod's Node, even if
    the Node is closed to new Pods. The job also requires the Node promised to a replacement, if
    Kubernetes receives heartbeats from the Node. For packed Pods, the job names the Node of each Pod. If
    Slurm has given the node to another job, the new job waits, and the Pod continues to run
    (`on_job.granted_waits`)."""
    nodes = [at.view.nodes.get(pod.life.node or "") for pod in record.bound_pods]
    promised = (at.view.nodes.get(each.slot.node) for each in record.unbound_members if each.slot)
    nodes += [node for node in promised if node is not None and not node.away]
    where = tuple(node.slurm_name for node in nodes if node is not None)
    if len(where) < len(nodes) or record.request.problems:
        return None
    job = record.request.job
    several = tuple(dict.fromkeys(where)) if job.tasks is None else where
    job = replace(
        job,
        admin_comment=str(record.key(at.rules.cluster)),
        nodes=len(set(where)),
        tasks=None if job.tasks is None else len(where),
        required_nodes=several,
        excluded_nodes=(),
        switches=None,
        segment=None,
        priority=HIGHEST_PRIORITY,
    )
    return Submit(record.uid, job_id, job, immediate=False)


def _write_allocation(
    record: Placeholder, member: Member, slot: Allocation, at: Context
) -> WriteAllocation:
    pod = member.pod
    reported = member.shown is not None or pod.shows_wait
    nominate = reported or pod.scheduling.looked_at or len(at.view.nodes) >= at.rules.nominate_from
    reported = reported and record.state is State.ALLOCATED  # in BOUND, the job has run for long
    learned_at = record.since if reported and pod.scheduling.allocation != slot else None
    attempt = None if pod.scheduling.attempt == record.attempt else record.attempt
    return WriteAllocation(record.uid, pod, slot, nominate, learned_at, attempt)
