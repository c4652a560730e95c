"""What a Pod's author is told, and when there is something new to tell."""

from __future__ import annotations

from collections.abc import Iterator

from extender.placement.avoided import NODE_REJECTED, beside, why_rejected
from extender.placement.condition_reason import ConditionReason
from extender.placement.events import (
    ReportWaiting,
)
from extender.placement.job_end import MISFIT
from extender.placement.kept_back import NOT_BINDABLE
from extender.placement.member import Member
from extender.placement.on_outcome import SLURM_REFUSES
from extender.placement.placeholder import Placeholder
from extender.placement.states import State
from wellknown.names import Reason

_WAITING = frozenset({State.SEEN, State.SUBMITTING, State.QUEUED})
_TOLD = _WAITING | {State.INVALID}
_MANY_AT_ONCE = "very many Pods are to be deleted at once: this one runs on until its turn comes"
_ALWAYS_TOLD = frozenset({SLURM_REFUSES, MISFIT})


def next_report(record: Placeholder, now: float) -> ReportWaiting | None:
    """Returns what is to be told to a Pod's author now, None where all have been told."""
    for member in record.members:
        if not member.reporting and now >= member.quiet_until:
            report = _next_report(record, member)
            if report is not None:
                return report
    return None


def _next_report(record: Placeholder, member: Member) -> ReportWaiting | None:
    cause = _what_holds_up(record, member)
    if cause is not None and record.throttled:
        cause = ConditionReason(Reason.EVICTION_THROTTLED, f"{cause.message}; {_MANY_AT_ONCE}")
    elif record.state not in _TOLD and not (cause and cause.reason in _ALWAYS_TOLD):
        return None
    if cause is None or not _is_news(cause, member.shown):
        return None
    waits = record.state in _TOLD or record.throttled
    return _report(record, member, cause, event_alone=not waits)


def _report(
    record: Placeholder, member: Member, cause: ConditionReason, *, event_alone: bool
) -> ReportWaiting:
    job_id = record.job.id if record.state is State.QUEUED else None
    return ReportWaiting(record.uid, member.pod, cause, job_id, event_alone=event_alone)


def _what_holds_up(record: Placeholder, member: Member) -> ConditionReason | None:
    """Returns a record's cause; that of a Pod that waits with the Nodes that rejected it. What
    kube-scheduler says of a Node may come after the Pod was told that it is rejected."""
    cause, shown = record.cause, member.shown
    if record.state not in _WAITING:
        return cause
    if cause is None:
        outdated = shown is not None and shown.reason == NODE_REJECTED and record.rejections.nodes
        return why_rejected(record) if outdated else None
    return cause if cause.reason == NOT_BINDABLE else beside(record, cause)


def _is_news(cause: ConditionReason, shown: ConditionReason | None) -> bool:
    """Tells whether a Pod's author is to be told something else. That Slurm has a plan for the job is
    news; the plan is another one each time, and that is not worth a write."""
    return shown is None or cause != shown or (bool(cause.outlook) and not shown.outlook)


def reports_again(record: Placeholder) -> Iterator[ReportWaiting]:
    """Yields what the Pods' authors are told again after a while: not where a Pod waits no more, or for
    something else. The condition is written anew only where the words have changed."""
    if record.state not in _TOLD:
        return
    for member in record.members:
        cause, shown = _what_holds_up(record, member), member.shown
        told = cause is not None and cause == shown and not member.reporting and not member.unlisted
        if told and cause is not None and shown is not None:
            yield _report(record, member, cause, event_alone=cause.words == shown.words)
