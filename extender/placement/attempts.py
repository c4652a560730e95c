"""An attempt that is over, and the next one."""

from __future__ import annotations

from collections.abc import Iterable

from extender.placement.avoided import NODE_REJECTED
from extender.placement.condition_reason import ConditionReason
from extender.placement.config import Context
from extender.placement.eligible_nodes import has_no_node
from extender.placement.events import (
    Failure,
    Remedy,
)
from extender.placement.kept_back import as_found, rested
from extender.placement.member import Member
from extender.placement.placeholder import Placeholder
from extender.placement.retry import Waits
from extender.placement.states import State
from wellknown.names import Reason


def give_back(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record of an allocation that is not bound: its Node is avoided for a while where
    kube-scheduler refuses it, and so are those that it did not offer."""
    rejecting = [each for each in record.members if each.rejects(record.job.id)]
    if not rejecting:
        cause = ConditionReason(
            Reason.NOT_BOUND, f"could not be bound to {_nodes(record.members)} before the deadline"
        )
        return rested(record.replaced(at.now, cause), at)
    cause = ConditionReason(
        NODE_REJECTED, f"kube-scheduler does not let it onto {_nodes(rejecting)}, which Slurm chose"
    )
    until = at.now + at.rules.avoid
    avoided = ((each.slot.node, until) for each in rejecting if each.slot)
    avoid = (*record.rejections.nodes, *avoided)
    replaced = record.replaced(at.now, cause).with_rejections(nodes=avoid)
    found = rejecting[0].pod.feasible_nodes
    if found is None or found.job_id != record.job.id:
        return rested(replaced, at)
    if not found.nodes:
        return replaced
    offered = replaced.with_rejections(offered=(found.taken, at.now + at.rules.offer))
    return rested(replaced, at) if has_no_node(offered, at) else offered


def _nodes(members: Iterable[Member]) -> str:
    return ", ".join(each.slot.node for each in members if each.slot)


def asked_all_the_same(record: Placeholder, attempt_try: int, job_id: int, now: float) -> Placeholder:
    """Returns the record of a Pod that has a job though it is refused, or could not use one: a replica
    that did not know yet that it leads no more asked for it. The next attempt is numbered before it is
    ended: once the Pod may have a job, that one's end is not the Pod's."""
    numbered = record.with_job(attempt_try=attempt_try, id=job_id, owned=False, over=False)
    return numbered.move(State.REPLACING, now, cause=record.cause)


def next_attempt(record: Placeholder, now: float) -> Placeholder:
    """Returns the record, in line again, of a Pod whose allocation was given back."""
    avoid = tuple((node, until) for node, until in record.rejections.nodes if until > now)
    return (
        record.move(State.SEEN, now)
        ._replace(attempt=record.attempt + 1)
        .with_members(slot=None)
        .with_job(attempt_try=0, id=None, immediate=False, over=False)
        .with_rejections(nodes=avoid)
    )


def begin(record: Placeholder, at: Context, partition: str, *, fast: bool) -> Placeholder:
    """Returns the record of a placeholder whose turn it is; `fast`: nobody is overtaken by a job that is
    asked for at once."""
    immediate = fast and _may_be_immediate(record, at, partition)
    if record.state is State.SUBMITTING:  # it was refused for now
        return record.with_job(immediate=immediate).with_retry(not_before=0.0)
    begun = (
        as_found(record, at)
        .move(State.SUBMITTING, at.now)
        .with_job(immediate=immediate)
        .with_retry(not_before=max(_pause(record, at), record.asks_from))
        .with_rejections(asks_first=False, rests_until=0.0)
    )
    return begun.submitted_as(at.rules.cluster, at.rules.ids, record.job.attempt_try)


def _may_be_immediate(record: Placeholder, at: Context, partition: str) -> bool:
    """Tells whether job/allocate can do it: the job is the token's own user's, and preempts nobody."""
    job = record.request.job
    own = job.user_id is None and job.group_id is None
    first = at.rules.fast_path and record.job.attempt_try == 0
    return first and own and not at.view.may_preempt(partition)


def _pause(record: Placeholder, at: Context) -> float:
    """A Pod whose allocations cannot be used, again and again, tries less and less often."""
    failed = record.attempt - 3
    return at.now + at.rules.delay(Remedy.LATER, failed) if failed >= 0 else 0.0


def not_now(record: Placeholder, cause: ConditionReason) -> Placeholder:
    """Returns the record of a submission that goes back in line."""
    return record._replace(cause=cause).with_retry(waits=Waits.FOR_TURN)


def trouble(failure: Failure) -> ConditionReason:
    """Returns what holds a Pod up, in words for its author."""
    what = "NeedsOperator" if failure.remedy is Remedy.OPERATOR else "Unavailable"
    known = {Remedy.LATER: Reason.SLURM_BUSY, Remedy.NO_ROOM: Reason.PARTITION_CLOSED}
    reason = known.get(failure.remedy) or Reason(f"{failure.system}{what}")
    return ConditionReason(reason, f"{failure.message}; the Pod waits and the request is repeated")
