"""The start and the end of an attempt to place a workload, and the moves that are due without news, such
as deadlines."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf

from extender.explain.cause import Cause, Kind, codes
from extender.jobs.verdict import NOT_READ
from extender.placement.nodes.eligible_nodes import has_no_node, offered_instead
from extender.placement.transitions.kept_back import REASONS, as_found, kept_back, rested
from extender.placement.transitions.lingering import without_expired
from extender.placement.transitions.on_pod import invalid, now_bound
from extender.record.config import Context
from extender.record.events import Failure, Remedy
from extender.record.member import Member
from extender.record.placeholder import Placeholder
from extender.record.retry import Waits
from extender.record.states import State
from extender.record.why_invalid import WhyInvalid
from slurm_client.model import JobSpec
from wellknown.job_key import PlaceholderKey
from wellknown.names import Reason

_MAX_BECAUSE_OF_PODS = 50
"""Attempts that fail because of other Pods do not lengthen the pauses between attempts, but only up to
this number."""
_GATHERS_S = 30.0
"""Longest time for which a report on missing Pods waits while other Pods of the gang come."""
_MAY_COME_SOON = frozenset({Reason.CLAIM_NOT_READY, Reason.PODS_MISSING})


def follow(record: Placeholder, at: Context, clear_at: Callable[[Iterable[str]], float]) -> Placeholder:
    """Returns the record after the moves that are due now. `clear_at` takes Nodes. `clear_at` returns
    the time at which the last containers on these Nodes end, among the containers that outlive their Pod
    and the Pod's job."""
    now = at.now
    record = without_expired(record, at).current_rejections(now)
    match record.state:
        case State.SEEN:
            why_not = _why_invalid(record)
            if why_not is None:
                return _in_line(record, at)
            refused = record.with_rejections(forbidden_because=None) if why_not.asks_again else record
            return invalid(refused, why_not, now)
        case State.INVALID if now >= record.rejections.invalid_until:
            asked_again = record.move(State.SEEN, now).with_rejections(forbidden_because=None)
            return follow(asked_again, at, clear_at)
        case State.DONE if not record.retry.not_before:  # without a job, slurmctld can restore nothing
            return record.with_retry(not_before=now)
        case State.RELEASING if record.job.over and not (record.in_flight or record.lingering):
            until = now + at.rules.tombstone
            return record.move(State.DONE, now, cause=record.cause).with_retry(not_before=until)
        case State.REPLACING if is_replaced(record):
            return follow(_restart(record, at), at, clear_at)
        case State.ALLOCATED if record.retry.unbound_by < inf:
            return _until_bound(record, at, clear_at)
    return record


def is_replaced(record: Placeholder) -> bool:
    """Returns True if the attempt has ended, and the Pods have the number of the next attempt."""
    over = record.state is State.REPLACING and record.job.over
    return over and record.write_done and not record.in_flight


def _why_invalid(record: Placeholder) -> WhyInvalid | None:
    """Returns why the Pod cannot be placed without a change."""
    problems = record.request.problems
    if not problems:
        return record.rejections.forbidden_because
    return WhyInvalid(Cause.of(Kind.INVALID_REQUEST, problems=problems))


def _in_line(record: Placeholder, at: Context) -> Placeholder:
    """Sets the cause of a Pod while the Pod is kept back, and removes the cause afterwards. The extender
    reports a missing claim, and missing Pods of a gang, only after `report_after`: a client may create
    them shortly after the Pod, or after the gang's last Pod (`on_pod.joined`)."""
    why, current = kept_back(record, at.now), record.cause
    reported = current is not None and current.reason in REASONS
    if why is None:
        return record._replace(cause=None) if reported else record
    until = max(record.since + at.rules.report_after, record.retry.not_before)
    soon = why.reason in _MAY_COME_SOON and at.now < min(until, record.since + _GATHERS_S)
    return record._replace(cause=None if soon and not reported else why)


def _restart(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record at the start of the next attempt, without a job. The extender then checks the
    Pods again (`table.after_pods`). The Pods may be invalid, or another replica may have placed the
    Pods."""
    seen = record.move(State.SEEN, at.now)
    asked = seen.with_asked(attempt=record.attempt + 1, attempt_try=0, immediate=False)
    blank = asked.with_job(id=None)
    return blank.with_members(slot=None)


def _until_bound(
    record: Placeholder, at: Context, clear_at: Callable[[Iterable[str]], float]
) -> Placeholder:
    """Gives back the allocation if no Pod was bound before the deadline. No Pod is bound beside
    containers that outlive another Pod and its job (`Binder`). Therefore the deadline starts again after
    the end of such containers."""
    if at.now < record.retry.unbound_by or record.in_flight:
        return record
    clear = clear_at(each.slot.node for each in record.members if each.slot)
    if clear > at.now:
        by = max(record.retry.unbound_by, clear + at.rules.unbound_deadline)
        return record.with_retry(unbound_by=by)
    if any(
        each.slot and each.pod.scheduling.provisioned_on == each.slot.node for each in record.members
    ):
        by = max(record.retry.unbound_by, record.since + at.rules.volume_deadline)
        record = record.with_retry(unbound_by=by)
    if at.now < record.retry.unbound_by:
        return record
    # The remaining Pods of a group may all be bound: other Pods may have ended before this replica saw
    # the group.
    return now_bound(record, at) if record.all_bound else give_back(record, at)


def set_apart(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record after Slurm granted a Node that other Pods close. At the same time, Slurm
    granted another Pod this Node, or a Node of the same topology domain. The extender requests another
    job at once, without these Nodes."""
    cause = Cause.of(Kind.CLOSED_BY_PODS, nodes=_nodes(record.members))
    return _because_of_pods(record.replaced(at.now, cause))


def _because_of_pods(record: Placeholder) -> Placeholder:
    return record.with_rejections(because_of_pods=record.rejections.because_of_pods + 1)


def give_back(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record of a Pod whose allocation was not bound and must be given back. For a while,
    the next job avoids the Nodes that kube-scheduler rejected or did not offer. The next job also avoids
    a Node where another Pod still uses the granted cores."""
    rejecting = [each for each in record.members if each.rejects(record.job.id)]
    nodes = _nodes(rejecting or record.members)
    cause = (
        Cause.of(Kind.NODES_REJECTED, nodes=nodes)
        if rejecting
        else Cause.of(Kind.NOT_BOUND, nodes=nodes)
    )
    replaced = record.replaced(at.now, cause)
    if rejecting or (record.cause is not None and record.cause.kind is Kind.CORES_IN_USE):
        until = at.now + at.rules.node_exclusion
        avoid = (*record.rejections.nodes, *((node, until) for node in nodes))
        replaced = replaced.with_rejections(nodes=avoid)
    if not rejecting:
        return rested(replaced, at)
    if any(each.pod.kept_from_pods for each in rejecting):
        replaced = _because_of_pods(replaced)
    found = rejecting[0].pod.scheduling.feasible_nodes
    if found is None or found.job_id != record.job.id:
        return rested(replaced, at)
    offered = offered_instead(replaced, found, at)
    if not found.nodes:
        return offered
    return rested(replaced, at) if has_no_node(offered, at) else offered


def _nodes(members: Iterable[Member]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.slot.node for each in members if each.slot))


def asked_all_the_same(record: Placeholder, key: PlaceholderKey, job_id: int, now: float) -> Placeholder:
    """Returns the record of an invalid or kept-back Pod for which a deposed replica has submitted a job.
    The extender numbers the next attempt before the extender ends the job. Otherwise the job's end would
    count as the Pod's end."""
    asked = {"attempt_try": key.attempt_try, "generation": key.generation}
    numbered = record.with_job(id=job_id, verdict=NOT_READ).with_asked(**asked)
    return numbered.move(State.REPLACING, now, cause=record.cause)


def begin(record: Placeholder, at: Context, partition: str, *, fast: bool) -> Placeholder:
    """Returns the record of a placeholder that has its turn. The next effect of the record requests the
    job. `fast` is True if an immediate job overtakes no other Pod."""
    immediate = fast and _may_be_immediate(record, at, partition)
    if record.state is State.SUBMITTING:  # Slurm rejected the job for now
        return record.with_asked(immediate=immediate).with_retry(not_before=0.0)
    found, not_before = as_found(record, at), max(_pause(record, at), record.rejections.asks_from)
    rejections = found.rejections._replace(asks_first=False, rests_until=0.0)
    begun = found._replace(rejections=rejections).move(State.SUBMITTING, at.now)
    submitted = begun.submitted_as(record.job.asked.attempt_try, at.rules, immediate=immediate)
    return submitted.with_retry(not_before=not_before)


def is_own(job: JobSpec) -> bool:
    """Returns True if a job belongs to the token's user. job/allocate accepts the id of such a job."""
    return job.user_id is None and job.group_id is None


def _may_be_immediate(record: Placeholder, at: Context, partition: str) -> bool:
    """Returns True if the extender may request the job by job/allocate. The job must belong to the
    token's user, and must preempt no other job."""
    first = at.rules.fast_path and record.job.asked.attempt_try == 0
    return first and is_own(record.request.job) and not at.view.may_preempt(partition)


def _pause(record: Placeholder, at: Context) -> float:
    """Returns the time of the next try. After several unusable allocations, the pauses grow."""
    failed = record.attempt - min(record.rejections.because_of_pods, _MAX_BECAUSE_OF_PODS) - 3
    return at.now + at.rules.delay(Remedy.LATER, failed) if failed >= 0 else 0.0


def not_now(record: Placeholder, cause: Cause) -> Placeholder:
    """Returns the record of a submission that waits for another turn."""
    return record._replace(cause=cause).with_retry(waits=Waits.FOR_TURN)


def cause_of(failure: Failure) -> Cause:
    """Returns the cause that reports a failure to users."""
    what = "NeedsOperator" if failure.remedy is Remedy.OPERATOR else "Unavailable"
    known = {Remedy.LATER: Reason.SLURM_BUSY, Remedy.NO_ROOM: Reason.PARTITION_CLOSED}
    reason = known.get(failure.remedy) or Reason(f"{failure.system}{what}")
    cause = Cause.of(Kind.REQUEST_REPEATED, message=failure.message)
    return replace(cause, reason=reason, outlook=codes(failure.codes))
