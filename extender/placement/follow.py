"""What follows from a record by itself, with no news: moves that are due, and deadlines."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from extender.placement.attempts import give_back, next_attempt
from extender.placement.condition_reason import WhyInvalid
from extender.placement.config import Context
from extender.placement.kept_back import NOT_READY, REASONS, kept_back
from extender.placement.lingering import over
from extender.placement.on_pod import invalid
from extender.placement.placeholder import Placeholder
from extender.placement.states import State
from extender.placement.table import after_pod


def follow(record: Placeholder, at: Context, clear_at: Callable[[str], float]) -> Placeholder:
    """Returns the record after what follows by itself. `clear_at` says when the last containers have
    ended on a Node whose Pod and job are both over."""
    now = at.now
    record = over(record, now).current_rejections(now)
    match record.state:
        case State.SEEN:
            why_not = _why_invalid(record)
            return _in_line(record, at) if why_not is None else invalid(record, why_not, now)
        case State.INVALID if record.forbidden_because and now >= record.forbidden_because.until:
            asked_again = record.move(State.SEEN, now)._replace(forbidden_because=None)
            return follow(asked_again, at, clear_at)
        case State.DONE if not record.retry.not_before:  # no job was made: nothing can come back
            return record.with_retry(not_before=now)
        case State.RELEASING if _is_released(record):
            until = now + at.rules.tombstone
            return record.move(State.DONE, now, cause=record.cause).with_retry(not_before=until)
        case State.REPLACING if is_replaced(record):
            return follow(_begin_anew(record, at), at, clear_at)
        case State.ALLOCATED if record.unbound_by < inf:
            return _until_bound(record, at, clear_at)
    return record


def is_replaced(record: Placeholder) -> bool:
    """Tells whether an attempt is over, and the next one numbered."""
    done = record.write_done and record.job.over and not record.retry.in_flight
    return record.state is State.REPLACING and done


def _is_released(record: Placeholder) -> bool:
    return record.job.over and not record.retry.in_flight and not record.lingering


def _why_invalid(record: Placeholder) -> WhyInvalid | None:
    """Returns why its Pod cannot be placed as it is."""
    problems = record.request.problems
    return WhyInvalid("; ".join(problems)) if problems else record.forbidden_because


def _in_line(record: Placeholder, at: Context) -> Placeholder:
    """A Pod that is kept back is told why. A claim may be made a moment after its Pod."""
    why, told = kept_back(record, at.now), record.cause
    if why is not None:
        soon = why.reason == NOT_READY and at.now < record.since + at.rules.settle
        return record if soon and told is None else record._replace(cause=why)
    return record if told is None or told.reason not in REASONS else record._replace(cause=None)


def _begin_anew(record: Placeholder, at: Context) -> Placeholder:
    """Its Pods may be refused by now, or placed by another replica."""
    record = next_attempt(record, at.now)
    for member in record.members:
        record = after_pod(record, member.pod, at)
    return record


def _until_bound(record: Placeholder, at: Context, clear_at: Callable[[str], float]) -> Placeholder:
    """No Pod is bound beside containers that outlive another and its job (`Binder`): the deadline
    begins anew when they have ended."""
    clear = max(map(clear_at, record.holds), default=0.0)
    if clear > at.now:
        by = max(record.unbound_by, clear + at.rules.unbound_deadline)
        return record._replace(unbound_by=by)
    if any(each.awaits_volume for each in record.members):
        by = max(record.unbound_by, record.since + at.rules.volume_deadline)
        record = record._replace(unbound_by=by)
    due = at.now >= record.unbound_by and not record.retry.in_flight
    return give_back(record, at) if due else record
