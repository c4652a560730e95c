"""What a Pod's author is told, and when there is something new to tell."""

from __future__ import annotations

from extender.placement.avoided import NODE_REFUSED, beside, node_refused
from extender.placement.condition_reason import ConditionReason
from extender.placement.events import (
    ReportWaiting,
)
from extender.placement.job_end import MISFIT
from extender.placement.kept_back import NOT_BINDABLE
from extender.placement.on_outcome import SLURM_REFUSES
from extender.placement.placeholder import Placeholder
from extender.placement.states import State
from wellknown.names import HELD_BACK

_WAITING = frozenset({State.SEEN, State.SUBMITTING, State.QUEUED})
_TOLD = _WAITING | {State.REFUSED}
_MANY_AT_ONCE = "very many Pods are to be deleted at once: this one runs on until its turn comes"
_ALWAYS_TOLD = frozenset({SLURM_REFUSES, MISFIT})


def next_report(placeholder: Placeholder) -> ReportWaiting | None:
    """Returns what is to be told to the Pod's author now, None where it has been told."""
    cause = _what_holds_up(placeholder)
    if cause is not None and placeholder.throttled:
        cause = ConditionReason(HELD_BACK, f"{cause.message}; {_MANY_AT_ONCE}")
    elif placeholder.state not in _TOLD and not (cause and cause.reason in _ALWAYS_TOLD):
        return None
    if cause is None or not _is_news(cause, placeholder.member.shown):
        return None
    job_id = placeholder.job.id if placeholder.state is State.QUEUED else None
    waits = placeholder.state in _TOLD or placeholder.throttled
    return ReportWaiting(placeholder.pod.uid, placeholder.pod, cause, job_id, event_alone=not waits)


def _what_holds_up(placeholder: Placeholder) -> ConditionReason | None:
    """Returns a record's cause; that of a Pod that waits with the Nodes that were refused to it. What
    kube-scheduler says of a Node may come after the Pod was told that it is refused."""
    cause, shown = placeholder.cause, placeholder.member.shown
    if placeholder.state not in _WAITING:
        return cause
    if cause is None:
        outdated = shown is not None and shown.reason == NODE_REFUSED and placeholder.rejections.nodes
        return node_refused(placeholder) if outdated else None
    return cause if cause.reason == NOT_BINDABLE else beside(placeholder, cause)


def _is_news(cause: ConditionReason, shown: ConditionReason | None) -> bool:
    """Tells whether a Pod's author is to be told something else. That Slurm has a plan for the job is
    news; the plan is another one each time, and that is not worth a write."""
    return shown is None or cause != shown or (bool(cause.outlook) and not shown.outlook)


def report_again(placeholder: Placeholder) -> ReportWaiting | None:
    """Returns what a Pod's author is told again after a while; None where it waits no more, or for
    something else. The condition is written anew only where the words have changed."""
    cause, shown = _what_holds_up(placeholder), placeholder.member.shown
    told = (
        placeholder.state in _TOLD
        and not placeholder.member.reporting
        and not placeholder.member.unlisted
    )
    if not told or cause is None or shown is None or cause != shown:
        return None
    job_id = placeholder.job.id if placeholder.state is State.QUEUED else None
    same = cause.words == shown.words
    return ReportWaiting(placeholder.pod.uid, placeholder.pod, cause, job_id, event_alone=same)
