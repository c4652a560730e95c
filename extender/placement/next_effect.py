"""The effect that moves a placeholder on: its record calls for it.

A record always says by itself what is to be done next, so that a failure needs no memory of its own
and a restart continues like any other moment.
"""

from __future__ import annotations

from dataclasses import replace

from extender.placement.avoided import NODE_REFUSED, node_refused
from extender.placement.condition_reason import ConditionReason
from extender.placement.config import Context
from extender.placement.eligible_nodes import excluded_nodes_of, is_outdated
from extender.placement.events import (
    CancelJob,
    CheckDepartures,
    Effect,
    EvictPod,
    ExcludeNodes,
    ReadJob,
    RecordJobId,
    Submit,
    WriteAllocation,
    WriteAttempt,
)
from extender.placement.job_end import CANCELLED
from extender.placement.lingering import hold
from extender.placement.on_outcome import REPEATEDLY
from extender.placement.placeholder import Placeholder
from extender.placement.states import State
from extender.request.pod_end import replaced_in_words, with_words
from wellknown.allocation import Allocation

_NO_WORDS = "Pod does not need it any more"
# A Pod that runs has its room already. Slurm's own numbers end at 0xffff0000 (priority/basic), and the
# last few mean something else.
BEFORE_ALL = 0xFFFFFF00


def next_effect(placeholder: Placeholder, at: Context) -> Effect | None:
    """Returns the effect that moves a placeholder on now; None where something must happen first."""
    uid, job_id = placeholder.pod.uid, placeholder.job.id
    match placeholder.state:
        case State.SUBMITTING if job_id is not None:
            return (
                ReadJob(uid, job_id) if placeholder.job.must_read else _submit(placeholder, job_id, at)
            )
        case State.QUEUED if job_id is not None:
            return _exclude(placeholder, job_id, at) or ReadJob(uid, job_id, for_words=True)
        case State.ALLOCATED if job_id is not None:
            return _towards_binding(placeholder, job_id, at)
        case State.BOUND if job_id is not None:
            return _of_bound(placeholder, job_id, at)
        case State.REPLACING if not placeholder.member.write_done and not _is_ended_first(placeholder):
            return WriteAttempt(uid, placeholder.pod, placeholder.attempt + 1, _why_over(placeholder))
        case State.REPLACING | State.RELEASING if job_id is not None and not placeholder.job.over:
            # What is ended by mistake cannot be given back (invariant I5).
            return _end(placeholder, job_id, at)
        case State.EVICTING if placeholder.cause is not None and not _is_going(placeholder):
            return _evict(placeholder, placeholder.cause)
    return None


def _why_over(placeholder: Placeholder) -> ConditionReason | None:
    """Returns why an attempt is over, with what kube-scheduler has said by now."""
    cause = placeholder.cause
    refused = cause is not None and cause.reason == NODE_REFUSED
    return node_refused(placeholder) if refused and placeholder.rejections.nodes else cause


def _is_ended_first(placeholder: Placeholder) -> bool:
    """Tells whether a job may be ended before the next attempt is written onto its Pod."""
    return placeholder.kept_unbound and placeholder.job.id is not None and not placeholder.job.over


def _evict(placeholder: Placeholder, cause: ConditionReason) -> EvictPod:
    """A Pod that others write to all the time is deleted however they have changed it: if it is bound it
    stays so, and nothing that can be written onto it gives it its job back. One that is not bound may
    have been placed anew by another replica, which has numbered that."""
    pod, late = placeholder.pod, placeholder.member.outwritten
    bound = pod.node is not None
    return EvictPod(
        pod.uid,
        pod,
        cause,
        in_any_version=late and bound,
        in_this_attempt=late and not bound,
        cancelled=placeholder.job.id if cause.reason == CANCELLED else None,
    )


def _end(placeholder: Placeholder, job_id: int, at: Context) -> Effect | None:
    if not placeholder.job.owned or (placeholder.job.misnamed and placeholder.job.name is None):
        return ReadJob(placeholder.pod.uid, job_id)
    if placeholder.member.lingers_until:
        return None if placeholder.member.write_done else hold(placeholder, job_id, at.now)
    # Whoever goes on renaming it does not keep it: it was read each time, with its key.
    proven = placeholder.job.identity is not None and placeholder.job.misnamed >= REPEATEDLY
    name = None if proven else placeholder.called
    first = _is_ended_first(placeholder)
    return CancelJob(placeholder.pod.uid, job_id, name, _last_words(placeholder), says_first=first)


def _last_words(placeholder: Placeholder) -> str:
    """What a job's comment is to say once it is cancelled."""
    pod, cause = placeholder.pod, placeholder.cause
    if _is_ended_first(placeholder):  # nothing else tells a later leader that nobody else ended it
        return replaced_in_words(cause.message if cause else _NO_WORDS, pod.request.job.comment)
    words = pod.end or (cause.message if cause else _NO_WORDS)
    return with_words(pod.request.job.comment, words)


def _towards_binding(placeholder: Placeholder, job_id: int, at: Context) -> Effect | None:
    if placeholder.allocation is None or placeholder.job.unverified:
        return ReadJob(placeholder.pod.uid, job_id)
    if not placeholder.member.write_done:
        return _write_allocation(placeholder, placeholder.allocation, at)
    if placeholder.member.rejection_cleared and placeholder.node_rejected:
        return CheckDepartures(placeholder.pod.uid, placeholder.allocation.node)
    return None


def _is_going(placeholder: Placeholder) -> bool:
    return placeholder.member.write_done and placeholder.pod.leaving


def _submit(placeholder: Placeholder, job_id: int, at: Context) -> Submit:
    job = replace(
        placeholder.pod.request.job,
        admin_comment=str(placeholder.key(at.rules.cluster)),
        excluded_nodes=excluded_nodes_of(placeholder, at).nodes,
    )
    return Submit(placeholder.pod.uid, job_id, job, placeholder.job.immediate)


def _of_bound(placeholder: Placeholder, job_id: int, at: Context) -> Effect | None:
    if placeholder.job.lost:
        return _submit_again(placeholder, job_id, at)
    if placeholder.job.unverified:
        return ReadJob(placeholder.pod.uid, job_id)
    pod, attempt = placeholder.pod, placeholder.attempt
    named = pod.job_id in (None, job_id) and pod.attempt == attempt
    return None if named else RecordJobId(pod.uid, pod, job_id, attempt)


def _submit_again(placeholder: Placeholder, job_id: int, at: Context) -> Submit | None:
    """The job of a Pod that runs goes where the Pod is, whatever Kubernetes would say to a new one. If
    Slurm has given the node away meanwhile the job waits, and the Pod runs on (`on_job`)."""
    node = at.view.nodes.get(placeholder.pod.node or "")
    if node is None or placeholder.pod.request.problems:
        return None
    key, where = str(placeholder.key(at.rules.cluster)), (node.slurm_name,)
    asked = placeholder.pod.request.job
    job = replace(asked, admin_comment=key, required_nodes=where, excluded_nodes=(), priority=BEFORE_ALL)
    return Submit(placeholder.pod.uid, job_id, job, immediate=False)


def _exclude(placeholder: Placeholder, job_id: int, at: Context) -> ExcludeNodes | None:
    if not is_outdated(placeholder, at):
        return None
    return ExcludeNodes(placeholder.pod.uid, job_id, excluded_nodes_of(placeholder, at).nodes)


def _write_allocation(placeholder: Placeholder, allocation: Allocation, at: Context) -> WriteAllocation:
    pod = placeholder.pod
    told = placeholder.member.shown is not None or pod.told_to_wait
    nominate = told or pod.looked_at or len(at.view.nodes) >= at.rules.nominate_from
    heard_at = placeholder.since if told and pod.allocation != allocation else None
    return WriteAllocation(pod.uid, pod, allocation, nominate, heard_at)
