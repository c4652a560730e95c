"""What Kubernetes' news of a Pod means for its placeholder: each function returns the next record."""

from __future__ import annotations

from math import inf

from extender.placement.config import Context
from extender.placement.kept_back import NOT_READY, asking_first
from extender.placement.lingering import lingering
from extender.placement.on_job import to_ask_again
from extender.placement.placeholder import ConditionReason, Placeholder, Refusal, State
from extender.placement.pod_allocation import with_carried
from extender.request.pod import Pod
from wellknown.names import Reason

_WITHOUT_JOB = frozenset({State.SEEN, State.REFUSED})
_OFFER_S = 0.2  # how long other replicas have to say what kube-scheduler offered
_WRITES = frozenset({State.ALLOCATED, State.REPLACING, State.EVICTING})
_ELSEWHERE = "Pod was bound without this job"
_NUMBERED = frozenset({State.BOUND, State.EVICTING})
"""A Pod that is bound gets no other attempt: a number that says so is forged."""
_OVER = frozenset({State.RELEASING, State.DONE})
_ASKED = frozenset({State.SUBMITTING, State.QUEUED})
MISSED = "Pod is not among all Pods any more"


def after_pod(placeholder: Placeholder, pod: Pod, at: Context) -> Placeholder:
    """Returns the record after a new version of its Pod was seen."""
    now, before, placeholder = at.now, placeholder.pod, _with(placeholder, pod)
    if placeholder.state in _OVER:
        return placeholder
    if pod.finished or (pod.deleting and pod.node is None):
        return after_end(placeholder, now)
    if pod.attempt > placeholder.attempt:
        return _overtaken(placeholder, at)
    placeholder = with_carried(placeholder, at)
    if pod.node is not None:
        return _bound(placeholder, pod.node, at)
    if pod.obstacle is not None and placeholder.state in _ASKED:
        return placeholder.move(State.REPLACING, now, cause=ConditionReason(NOT_READY, pod.obstacle))
    if placeholder.unbound_by < inf and before.provisioned_on and not pod.provisioned_on:
        placeholder = placeholder._replace(unbound_by=now + at.rules.unbound_deadline)
    return _unbound(placeholder, before, at)


def _unbound(placeholder: Placeholder, before: Pod, at: Context) -> Placeholder:
    pod = placeholder.pod
    if pod.request != before.request:
        return _awaited(_changed(placeholder, before, at))
    if placeholder.state is State.ALLOCATED and pod.allocation == placeholder.allocation:
        return _not_bound(placeholder, before, at.now)
    return _awaited(placeholder)


def _awaited(placeholder: Placeholder) -> Placeholder:
    """A write may have waited for this version of the Pod. The eviction limiter, or Slurm, does not."""
    writes = placeholder.state in _WRITES and not (placeholder.held_back or placeholder.kept_unbound)
    if writes and not (placeholder.written or placeholder.failures):
        return placeholder._replace(not_before=0.0)
    return placeholder


def _with(placeholder: Placeholder, pod: Pod) -> Placeholder:
    """A Pod that is bound runs by what was asked for, whatever is asked, or allowed, from then on.
    Where only an earlier leader knew that, and this one a request that is forbidden, the next counts."""
    request = placeholder.pod.request
    if placeholder.state is State.BOUND and not request.problems and pod.request is not request:
        pod = pod._replace(request=request)
    said = "" if pod.node is not None else pod.node_rejection or placeholder.said
    return placeholder._replace(pod=pod, missing=False, said=said)


def _not_bound(placeholder: Placeholder, before: Pod, now: float) -> Placeholder:
    """A refusal counts once the Pod was seen without one. What was offered instead comes a moment after
    the condition, from whichever replica was asked."""
    if not placeholder.refused:
        return placeholder._replace(clear=True)
    pod = placeholder.pod
    if pod.unschedulable and not before.unschedulable and pod.feasible_nodes is None:
        return placeholder._replace(not_before=max(placeholder.not_before, now + _OFFER_S))
    if pod.feasible_nodes != before.feasible_nodes and not placeholder.waiting_for_departures:
        return placeholder._replace(not_before=0.0)
    return placeholder


def _overtaken(placeholder: Placeholder, at: Context) -> Placeholder:
    """Another replica has numbered a later attempt: ours is over. Its job is ended if it still lives,
    and the later attempt is taken up where it stands, under the same ids."""
    pod, now = placeholder.pod, at.now
    bound = pod.node is not None
    if bound and (placeholder.state in _NUMBERED or pod.job_id == placeholder.job_id):
        return placeholder  # the number is wrong, not the job
    if placeholder.state in _WITHOUT_JOB:
        numbered = asking_first(placeholder._replace(attempt=pod.attempt, attempt_try=0))
        numbered = with_carried(numbered, at)
        return numbered if pod.node is None else _bound(numbered, pod.node, at)
    before = placeholder._replace(attempt=pod.attempt - 1, allocation=None)
    if placeholder.state is State.REPLACING:  # our own number, or that of another replica
        return before._replace(written=True, not_before=0.0)
    before = before.move(State.REPLACING, now, written=True, job_over=placeholder.job_over)
    return asking_first(before)


def after_end(placeholder: Placeholder, now: float, words: str = "Pod deleted") -> Placeholder:
    """Returns the record after its Pod is gone, will never run again, or has no use for its job; `words`
    are for where the Pod does not say itself what became of it."""
    placeholder = placeholder._replace(missing=False)
    if placeholder.state in _OVER:
        return placeholder
    to = State.DONE if placeholder.state in _WITHOUT_JOB else State.RELEASING
    return placeholder.move(to, now, cause=ConditionReason(Reason.POD_ENDED, words))


def after_deletion(placeholder: Placeholder, last: Pod | None, now: float) -> Placeholder:
    """Returns the record after its Pod's deletion was seen; `last` is the version that was deleted."""
    ended = after_end(placeholder, now)
    fresh = ended.state is State.RELEASING and placeholder.state is not State.RELEASING
    return lingering(ended, last, now) if fresh and last is not None else ended


def after_absence(placeholder: Placeholder, now: float) -> Placeholder:
    """Returns the record after its Pod was missing from a list of all Pods. kube-apiserver may have come
    up with older data, without many that run: what is made of it is for the eviction limiter to say."""
    if placeholder.state in _WITHOUT_JOB | _OVER:
        return after_end(placeholder, now)
    return placeholder._replace(missing=True)


def is_back(placeholder: Placeholder, pod: Pod) -> bool:
    """Tells whether a Pod that was taken for gone, since a list of all Pods lacked it, is there: it
    begins anew, by what it carries and what Slurm says of its job."""
    missed = placeholder.cause is not None and placeholder.cause.message == MISSED
    return missed and placeholder.state in _OVER and not (pod.finished or pod.leaving)


def refused(placeholder: Placeholder, refusal: Refusal, now: float) -> Placeholder:
    """Returns the record of a Pod that cannot run as it is."""
    return placeholder.move(State.REFUSED, now, cause=refusal.cause(Reason.INVALID))


def _bound(placeholder: Placeholder, node: str, at: Context) -> Placeholder:
    """A Pod that someone else bound has no use for our job: it is given back, the Pod stays."""
    match placeholder.state:
        case State.BOUND:
            return placeholder
        case State.EVICTING:
            return _awaited(placeholder)
        case State.ALLOCATED | State.REPLACING if _is_ours(placeholder, node):
            if placeholder.forgotten:
                bound = placeholder.move(State.BOUND, at.now, job_over=False)
                return bound if bound.pod.leaving else to_ask_again(bound)
            if placeholder.job_over:
                return placeholder.move(State.EVICTING, at.now, job_over=True, cause=placeholder.cause)
            return _watched(placeholder.move(State.BOUND, at.now), at)
    return after_end(placeholder, at.now, _ELSEWHERE)


def _watched(placeholder: Placeholder, at: Context) -> Placeholder:
    """A slurmctld that is killed may forget that it started a job that had waited, and start it
    elsewhere before anybody asks: it is read once more when that is past."""
    if placeholder.immediate or placeholder.unverified_since is not None:
        return placeholder
    return placeholder._replace(unverified_since=inf, not_before=at.now + at.rules.saved)


def _is_ours(placeholder: Placeholder, node: str) -> bool:
    return placeholder.allocation is not None and placeholder.allocation.node == node


def _changed(placeholder: Placeholder, before: Pod, at: Context) -> Placeholder:
    """The Pod's author asks for something else. What Slurm has not granted yet is asked for anew; what
    it has is not affected."""
    request, placeholder = (
        placeholder.pod.request,
        placeholder._replace(forbidden_because=None, denials=()),
    )
    now = at.now
    match placeholder.state:
        case State.REFUSED:
            return placeholder.move(State.SEEN, now, asks_from=max(now, placeholder.asks_from))
        case State.SUBMITTING | State.QUEUED if request.job != before.request.job or request.problems:
            cause = ConditionReason(Reason.CHANGED, "the Pod asks for something else than its job")
            return placeholder.move(State.REPLACING, now, cause=cause)
        case State.QUEUED:
            return placeholder._replace(not_before=0.0)  # other Nodes are closed to it now
        case State.ALLOCATED:  # resized, perhaps, where no policy refuses that: /bind reads its job
            return placeholder._replace(immediate=False)
    return placeholder
