"""What moves a placeholder on: the effect that its record calls for, and what an outcome makes of it.

A record always says by itself what is to be done next, so that a failure needs no memory of its own
and a restart continues like any other moment.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from extender.cluster.view import Exclusion, Wish
from extender.placement.asked import refused_values
from extender.placement.avoided import NODE_REFUSED, beside, node_refused
from extender.placement.config import Context, PlacementConfig
from extender.placement.events import (
    CancelJob,
    CheckDepartures,
    Effect,
    EvictPod,
    ExcludeNodes,
    Failure,
    HoldJob,
    Outcome,
    ReadJob,
    RecordJobId,
    Remedy,
    ReportWaiting,
    Submit,
    WriteAllocation,
    WriteAttempt,
)
from extender.placement.fit import covers, owner_of
from extender.placement.kept_back import NOT_BINDABLE, rested
from extender.placement.lingering import hold
from extender.placement.on_job import CANCELLED, MISFIT, after_read, granted
from extender.placement.on_pod import refused
from extender.placement.placeholder import ConditionReason, Placeholder, Refusal, State
from extender.request.pod import Pod
from extender.request.pod_end import replaced_in_words, with_words
from slurm_client.model import Grant, Job
from wellknown.allocation import Allocation
from wellknown.names import Reason

_WAITING = frozenset({State.SEEN, State.SUBMITTING, State.QUEUED})
_TOLD = _WAITING | {State.REFUSED}
# What Slurm answers to a submission before it looks for a duplicate.
_ANSWERS = frozenset({Remedy.NO_ROOM, Remedy.CHANGE, Remedy.LATER, Remedy.OPERATOR})
# Answers that leave open whether there is a job under the id: it is read.
_LEAVE_OPEN = frozenset({Remedy.ID_TAKEN, Remedy.UNEXPLAINED})
_MANY_AT_ONCE = "very many Pods are to be deleted at once: this one runs on until its turn comes"
_REPEATEDLY = 5  # within some three seconds: once, it may have crossed with something else
_DENIALS = 6  # within some six seconds, with a look after each
_REFUSES = Reason.REJECTED_BY_SLURM
_NEVER = "Slurm refuses the job"
_ALWAYS_TOLD = frozenset({_REFUSES, MISFIT})
_NO_WORDS = "Pod does not need it any more"
# A Pod that runs has its room already. Slurm's own numbers end at 0xffff0000 (priority/basic), and the
# last few mean something else.
BEFORE_ALL = 0xFFFFFF00
_NO_NODE = Reason.NO_ELIGIBLE_NODE


def next_step(placeholder: Placeholder, at: Context) -> Effect | None:
    """Returns the effect that moves a placeholder on now; None where something must happen first."""
    uid, job_id = placeholder.pod.uid, placeholder.job_id
    match placeholder.state:
        case State.SUBMITTING if job_id is not None:
            return ReadJob(uid, job_id) if placeholder.exists else _submit(placeholder, job_id, at)
        case State.QUEUED if job_id is not None:
            return _exclude(placeholder, job_id, at) or ReadJob(uid, job_id, for_words=True)
        case State.ALLOCATED if job_id is not None:
            return _towards_binding(placeholder, job_id, at)
        case State.BOUND if job_id is not None:
            return _of_bound(placeholder, job_id, at)
        case State.REPLACING if not placeholder.written and not _is_ended_first(placeholder):
            return WriteAttempt(uid, placeholder.pod, placeholder.attempt + 1, _why_over(placeholder))
        case State.REPLACING | State.RELEASING if job_id is not None and not placeholder.job_over:
            # What is ended by mistake cannot be given back (invariant I5).
            return _end(placeholder, job_id, at)
        case State.EVICTING if placeholder.cause is not None and not _is_going(placeholder):
            return _evict(placeholder, placeholder.cause)
    return None


def _why_over(placeholder: Placeholder) -> ConditionReason | None:
    """Returns why an attempt is over, with what kube-scheduler has said by now."""
    cause = placeholder.cause
    refused = cause is not None and cause.reason == NODE_REFUSED
    return node_refused(placeholder) if refused and placeholder.avoid else cause


def _is_ended_first(placeholder: Placeholder) -> bool:
    """Tells whether a job may be ended before the next attempt is written onto its Pod."""
    return placeholder.kept_unbound and placeholder.job_id is not None and not placeholder.job_over


def _evict(placeholder: Placeholder, cause: ConditionReason) -> EvictPod:
    """A Pod that others write to all the time is deleted however they have changed it: if it is bound it
    stays so, and nothing that can be written onto it gives it its job back. One that is not bound may
    have been placed anew by another replica, which has numbered that."""
    pod, late = placeholder.pod, placeholder.outwritten
    bound = pod.node is not None
    return EvictPod(
        pod.uid,
        pod,
        cause,
        in_any_version=late and bound,
        in_this_attempt=late and not bound,
        cancelled=placeholder.job_id if cause.reason == CANCELLED else None,
    )


def _end(placeholder: Placeholder, job_id: int, at: Context) -> Effect | None:
    if not placeholder.ours or (placeholder.misnamed and placeholder.job_name is None):
        return ReadJob(placeholder.pod.uid, job_id)
    if placeholder.lingers_until:
        return None if placeholder.written else hold(placeholder, job_id, at.now)
    # Whoever goes on renaming it does not keep it: it was read each time, with its key.
    proven = placeholder.known is not None and placeholder.misnamed >= _REPEATEDLY
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
    if placeholder.allocation is None or placeholder.unverified_since is not None:
        return ReadJob(placeholder.pod.uid, job_id)
    if not placeholder.written:
        return _write_allocation(placeholder, placeholder.allocation, at)
    if placeholder.clear and placeholder.refused:
        return CheckDepartures(placeholder.pod.uid, placeholder.allocation.node)
    return None


def _is_going(placeholder: Placeholder) -> bool:
    return placeholder.written and placeholder.pod.leaving


def _submit(placeholder: Placeholder, job_id: int, at: Context) -> Submit:
    job = replace(
        placeholder.pod.request.job,
        admin_comment=str(placeholder.key(at.rules.cluster)),
        excluded_nodes=_excluded(placeholder, at).nodes,
    )
    return Submit(placeholder.pod.uid, job_id, job, placeholder.immediate)


def _of_bound(placeholder: Placeholder, job_id: int, at: Context) -> Effect | None:
    if placeholder.forgotten:
        return _submit_again(placeholder, job_id, at)
    if placeholder.unverified_since is not None:
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
    return ExcludeNodes(placeholder.pod.uid, job_id, _excluded(placeholder, at).nodes)


def _excluded(placeholder: Placeholder, at: Context) -> Exclusion:
    """What the Pod's author excludes, and what Kubernetes would refuse."""
    return at.view.exclusion(_wish(placeholder, at))


def _wish(placeholder: Placeholder, at: Context) -> Wish:
    request, (offered, until) = placeholder.pod.request, placeholder.offered
    return Wish(
        request.constraints,
        at.view.partition_name(request.job.partition),
        request.job.excluded_nodes,
        request.job.required_nodes,
        frozenset(name for name, until in placeholder.avoid if until > at.now),
        offered if until > at.now else None,
    )


def is_outdated(placeholder: Placeholder, at: Context) -> bool:
    """Tells whether a job that waits goes by Nodes as they were. All nodes are never excluded: Slurm
    would call that a mistake."""
    excluded = _excluded(placeholder, at)
    return excluded.nodes != placeholder.excluded and not excluded.leaves_none


def has_no_node(placeholder: Placeholder, at: Context) -> bool:
    """Tells whether all nodes are closed to the Pod, or all of those that it requires: then asking is
    pointless, and Slurm would call it a mistake of the Pod's author. Of several required nodes Slurm
    gives a job of one node any that it can (24.11, 26.05)."""
    return _excluded(placeholder, at).leaves_none


def no_node(placeholder: Placeholder, at: Context) -> ConditionReason:
    """Returns why no job is asked for a Pod to which no Node is open."""
    wish = _wish(placeholder, at)
    why = at.view.why_none(wish)
    return ConditionReason(_NO_NODE, f"no Node of partition {wish.partition} is open to this Pod: {why}")


def _write_allocation(placeholder: Placeholder, allocation: Allocation, at: Context) -> WriteAllocation:
    pod = placeholder.pod
    told = placeholder.shown is not None or pod.told_to_wait
    nominate = told or pod.looked_at or len(at.view.nodes) >= at.rules.nominate_from
    heard_at = placeholder.since if told and pod.allocation != allocation else None
    return WriteAllocation(pod.uid, pod, allocation, nominate, heard_at)


def next_word(placeholder: Placeholder) -> ReportWaiting | None:
    """Returns what is to be told to the Pod's author now, None where it has been told."""
    cause = _what_holds_up(placeholder)
    if cause is not None and placeholder.held_back:
        cause = ConditionReason(Reason.EVICTION_THROTTLED, f"{cause.message}; {_MANY_AT_ONCE}")
    elif placeholder.state not in _TOLD and not (cause and cause.reason in _ALWAYS_TOLD):
        return None
    if cause is None or not _is_news(cause, placeholder.shown):
        return None
    job_id = placeholder.job_id if placeholder.state is State.QUEUED else None
    waits = placeholder.state in _TOLD or placeholder.held_back
    return ReportWaiting(placeholder.pod.uid, placeholder.pod, cause, job_id, event_alone=not waits)


def _what_holds_up(placeholder: Placeholder) -> ConditionReason | None:
    """Returns a record's cause; that of a Pod that waits with the Nodes that were refused to it. What
    kube-scheduler says of a Node may come after the Pod was told that it is refused."""
    cause, shown = placeholder.cause, placeholder.shown
    if placeholder.state not in _WAITING:
        return cause
    if cause is None:
        outdated = shown is not None and shown.reason == NODE_REFUSED and placeholder.avoid
        return node_refused(placeholder) if outdated else None
    return cause if cause.reason == NOT_BINDABLE else beside(placeholder, cause)


def _is_news(cause: ConditionReason, shown: ConditionReason | None) -> bool:
    """Tells whether a Pod's author is to be told something else. That Slurm has a plan for the job is
    news; the plan is another one each time, and that is not worth a write."""
    return shown is None or cause != shown or (bool(cause.outlook) and not shown.outlook)


def word_again(placeholder: Placeholder) -> ReportWaiting | None:
    """Returns what a Pod's author is told again after a while; None where it waits no more, or for
    something else. The condition is written anew only where the words have changed."""
    cause, shown = _what_holds_up(placeholder), placeholder.shown
    told = placeholder.state in _TOLD and not placeholder.showing and not placeholder.missing
    if not told or cause is None or shown is None or cause != shown:
        return None
    job_id = placeholder.job_id if placeholder.state is State.QUEUED else None
    same = cause.words == shown.words
    return ReportWaiting(placeholder.pod.uid, placeholder.pod, cause, job_id, event_alone=same)


def after_outcome(placeholder: Placeholder, outcome: Outcome, at: Context) -> Placeholder:
    """Returns the record after one of its effects was carried out, or failed."""
    effect, result, at = outcome.effect, outcome.result, replace(at, equipment=outcome.equipment)
    if isinstance(effect, ReportWaiting):
        return _after_show(placeholder, effect, result, at)
    if isinstance(effect, ReadJob) and effect.for_words:
        return _after_words(placeholder, effect, result, at)
    placeholder = placeholder._replace(in_flight=False)
    if isinstance(result, Failure):
        return _after_failure(placeholder, effect, result, at)
    return _after_success(placeholder, effect, result, at)


def _after_show(
    placeholder: Placeholder, effect: ReportWaiting, result: Any, at: Context
) -> Placeholder:
    """What could not be told is told later: a message is not worth a hurry."""
    placeholder = placeholder._replace(showing=False)
    if not isinstance(result, Failure):
        told = placeholder._replace(shown=effect.cause)
        changes = effect.cause.reason == _NO_NODE  # with each Node
        return told._replace(quiet_until=at.now + at.rules.reason_interval) if changes else told
    stale = result.remedy is Remedy.FRESHER
    return placeholder._replace(
        quiet_until=at.now + (at.rules.settle if stale else at.rules.reason_interval)
    )


def _after_words(placeholder: Placeholder, effect: ReadJob, result: Any, at: Context) -> Placeholder:
    """What was said of a job that has moved on since is old news. What else is under way decides when
    there is more to do."""
    asked, placeholder = placeholder.asked_why, placeholder._replace(asked_why=None)
    waits = placeholder.state is State.QUEUED and placeholder.job_id == effect.job_id
    if not waits or asked is None or asked < placeholder.since:
        return placeholder
    after = _after_failure if isinstance(result, Failure) else _after_success
    answered = after(placeholder, effect, result, at)
    if placeholder.in_flight and answered.state is State.QUEUED:
        return answered._replace(not_before=placeholder.not_before, failures=placeholder.failures)
    return answered


def _after_success(placeholder: Placeholder, effect: Effect, result: Any, at: Context) -> Placeholder:
    if isinstance(effect, ReadJob):
        return _after_look(placeholder, result, at)
    if isinstance(effect, CancelJob):
        return _cancelled(placeholder, at)
    if isinstance(effect, Submit):
        return _taken(placeholder, effect, result, at)
    if isinstance(effect, ExcludeNodes):
        return placeholder._replace(excluded=effect.nodes, failures=0)
    if _stale(placeholder, effect):
        return placeholder
    if isinstance(effect, CheckDepartures):
        return _looked(placeholder, result, at)
    return _written(placeholder._replace(written=True, failures=0), effect, result, at)


def _written(placeholder: Placeholder, effect: Effect, result: Any, at: Context) -> Placeholder:
    if isinstance(effect, WriteAllocation):
        pod = _as_written(placeholder.pod, effect.allocation, result)
        by = at.now + at.rules.unbound_deadline
        shown = None if effect.nominate else placeholder.shown  # the condition says something else now
        return placeholder._replace(pod=pod, not_before=0.0, unbound_by=by, shown=shown, said="")
    if isinstance(effect, WriteAttempt) and effect.cause is not None:
        placeholder = placeholder._replace(shown=effect.cause)
    return placeholder._replace(not_before=at.now + _pause(placeholder, effect, at.rules))


def _pause(placeholder: Placeholder, effect: Effect, rules: PlacementConfig) -> float:
    """Returns how long what was written counts, whatever becomes of it: somebody may undo it again and
    again."""
    if isinstance(effect, EvictPod):
        return rules.reevict
    waits = placeholder.forgotten or placeholder.unverified_since is not None  # for something else
    return rules.renote if isinstance(effect, RecordJobId) and not waits else 0.0


def _as_written(pod: Pod, allocation: Allocation, version: str) -> Pod:
    """kube-scheduler may ask to bind the Pod before the watch shows what was written."""
    if pod.allocation == allocation:
        return pod
    return pod._replace(
        allocation=allocation,
        job_id=allocation.job_id,
        gates=pod.other_gates,
        resource_version=version,
        feasible_nodes=None,
    )


def _looked(placeholder: Placeholder, vacated_in: float, at: Context) -> Placeholder:
    """A Node that is being vacated is waited for: kube-scheduler binds as soon as it is clear. Where it
    has not even then, the allocation is written anew, so that what it says next is said of that Node.
    A Pod whose deletion is done may still be in kube-scheduler's own view for a moment."""
    if not placeholder.refused:
        return placeholder
    unheard = placeholder.pod.lacks_room and at.now < placeholder.since + at.rules.hears_within
    if not vacated_in and unheard and not placeholder.waiting_for_departures:
        vacated_in = at.rules.settle
    if vacated_in > 0:
        clear = at.now + vacated_in
        by = max(placeholder.unbound_by, clear + at.rules.unbound_deadline)
        return placeholder._replace(
            waiting_for_departures=True, failures=0, not_before=clear, unbound_by=by
        )
    if placeholder.waiting_for_departures:
        return placeholder._replace(waiting_for_departures=False, written=False, clear=False, failures=0)
    return give_back(placeholder, at)


def give_back(placeholder: Placeholder, at: Context) -> Placeholder:
    """Returns the record of an allocation that is not bound: its Node is avoided for a while where
    kube-scheduler refuses it, and so are those that it did not offer."""
    assert placeholder.allocation is not None
    node, pod = placeholder.allocation.node, placeholder.pod
    if not placeholder.refused:
        cause = ConditionReason(Reason.NOT_BOUND, f"could not be bound to {node} before the deadline")
        return rested(placeholder.move(State.REPLACING, at.now, cause=cause), at)
    cause = ConditionReason(
        NODE_REFUSED, f"kube-scheduler does not let it onto {node}, which Slurm chose"
    )
    avoid = (*placeholder.avoid, (node, at.now + at.rules.avoid))
    replaced = placeholder.move(State.REPLACING, at.now, cause=cause, avoid=avoid)
    if pod.feasible_nodes is None or pod.feasible_nodes.job_id != placeholder.job_id:
        return rested(replaced, at)
    if not pod.feasible_nodes.nodes:
        return replaced
    offered = replaced._replace(offered=(pod.feasible_nodes.taken, at.now + at.rules.offer))
    return rested(replaced, at) if has_no_node(offered, at) else offered


def asked_all_the_same(
    placeholder: Placeholder, attempt_try: int, job_id: int, now: float
) -> Placeholder:
    """Returns the record of a Pod that has a job though it is refused, or could not use one: a replica
    that did not know yet that it leads no more asked for it. The next attempt is numbered before it is
    ended: once the Pod may have a job, that one's end is not the Pod's."""
    numbered = placeholder._replace(attempt_try=attempt_try, job_id=job_id, ours=False, job_over=False)
    return numbered.move(State.REPLACING, now, cause=placeholder.cause)


def next_attempt(placeholder: Placeholder, now: float) -> Placeholder:
    """Returns the record, in line again, of a Pod whose allocation was given back."""
    avoid = tuple((node, until) for node, until in placeholder.avoid if until > now)
    return placeholder.move(
        State.SEEN,
        now,
        attempt=placeholder.attempt + 1,
        attempt_try=0,
        job_id=None,
        immediate=False,
        allocation=None,
        job_over=False,
        avoid=avoid,
    )


def _cancelled(placeholder: Placeholder, at: Context) -> Placeholder:
    if placeholder.state not in (State.RELEASING, State.REPLACING):
        return placeholder
    return placeholder._replace(failures=0, not_before=at.now + at.rules.recancel)


def _stale(placeholder: Placeholder, effect: Effect) -> bool:
    """Tells whether a write belongs to a state that the placeholder has left meanwhile."""
    of = {
        WriteAllocation: State.ALLOCATED,
        CheckDepartures: State.ALLOCATED,
        WriteAttempt: State.REPLACING,
        EvictPod: State.EVICTING,
        HoldJob: State.RELEASING,
        RecordJobId: State.BOUND,
    }.get(type(effect))
    return placeholder.state is not of


def _taken(placeholder: Placeholder, effect: Submit, grant: Grant | None, at: Context) -> Placeholder:
    placeholder = placeholder._replace(ours=effect.job_id == placeholder.job_id, denials=())
    if placeholder.state is State.BOUND:
        return _asked_again(placeholder, at)
    if placeholder.state is not State.SUBMITTING:
        return placeholder
    if effect.immediate and grant is not None and covers(grant, effect.job):
        return granted(placeholder.move(State.ALLOCATED, at.now), effect.job_id, grant, at)
    if effect.immediate:  # not known, or (a limit of the partition) queued all the same
        return placeholder._replace(exists=True)
    excluded = effect.job.excluded_nodes
    later = at.now + at.rules.settle
    queued = placeholder.move(State.QUEUED, at.now, excluded=excluded, not_before=later)
    return queued._replace(owner=owner_of(effect.job))


def _asked_again(placeholder: Placeholder, at: Context) -> Placeholder:
    until = at.now + at.rules.settle
    return placeholder._replace(
        forgotten=False, misses=0, failures=0, unverified_since=at.now, not_before=until
    )


def _after_failure(
    placeholder: Placeholder, effect: Effect, failure: Failure, at: Context
) -> Placeholder:
    if isinstance(effect, Submit) and placeholder.state is State.SUBMITTING:
        placeholder = placeholder._replace(excluded=effect.job.excluded_nodes)
        answered = _after_answer(placeholder, failure, at)
        if answered is not None:
            return answered
    if placeholder.forgotten and failure.remedy is Remedy.ID_TAKEN:  # it has come back
        return _asked_again(placeholder, at)
    if failure.remedy is Remedy.OTHER_JOB:
        pause = at.rules.delay(Remedy.LATER, placeholder.misnamed) if placeholder.misnamed else 0.0
        misnamed = placeholder.misnamed + 1
        return placeholder._replace(misnamed=misnamed, job_name=None, not_before=at.now + pause)
    if failure.remedy in (Remedy.FRESHER, Remedy.GONE):
        return _after_conflict(placeholder, effect, at)
    later = at.now + at.rules.delay(failure.remedy, placeholder.failures)
    held_up = placeholder._replace(failures=placeholder.failures + 1, not_before=later)
    if isinstance(effect, ReadJob) and placeholder.unverified_since is not None:
        # What Slurm has time for begins when it is back.
        held_up = held_up._replace(unverified_since=max(placeholder.unverified_since, at.now))
    if placeholder.state is State.SUBMITTING:
        return held_up._replace(cause=trouble(failure))
    return _refused_again(held_up, failure)


def _after_conflict(placeholder: Placeholder, effect: Effect, at: Context) -> Placeholder:
    """The Pod's next version mostly comes in a moment, or is here already. An allocation that others
    keep us from writing is given back like one that is not bound."""
    later = placeholder._replace(not_before=at.now + 1.0)
    if not isinstance(effect, WriteAllocation | WriteAttempt | EvictPod) or _stale(placeholder, effect):
        return later
    version = effect.pod.resource_version
    later = later.after_conflict(version)
    if later.state is State.ALLOCATED:
        by = min(later.unbound_by, at.now + at.rules.unbound_deadline)
        later = later._replace(unbound_by=by)
    fresher = version != later.pod.resource_version
    return later._replace(not_before=0.0) if fresher else later


def _refused_again(placeholder: Placeholder, failure: Failure) -> Placeholder:
    """What Slurm will not hear of the job of a Pod that goes on all the same is said again and again,
    and its author told."""
    goes_on = placeholder.state in (State.QUEUED, State.BOUND)
    refuses = failure.remedy in (Remedy.CHANGE, Remedy.UNEXPLAINED)
    if not refuses or placeholder.failures < _REPEATEDLY or not goes_on:
        return placeholder
    words = f"Slurm refuses what it is asked for job {placeholder.job_id}: {failure.message}"
    return placeholder._replace(cause=ConditionReason(_REFUSES, words))


def _after_answer(placeholder: Placeholder, failure: Failure, at: Context) -> Placeholder | None:
    """Returns the record of a submission that Slurm has answered; None where it has not."""
    if failure.remedy in _LEAVE_OPEN:
        return _left_open(placeholder, failure)
    return _not_taken(placeholder, failure, at) if failure.remedy in _ANSWERS else None


def _left_open(placeholder: Placeholder, failure: Failure) -> Placeholder:
    denials = (*placeholder.denials, failure.message)[-_DENIALS:]
    last = len(denials) == _DENIALS  # or one more of a Pod whose author knows
    cause = placeholder.cause if last else trouble(failure)
    return placeholder._replace(exists=True, failures=0, denials=denials, cause=cause)


def _after_look(placeholder: Placeholder, job: Job | None, at: Context) -> Placeholder:
    if placeholder.denials and placeholder.state is State.SUBMITTING and job is None:
        return _denied(placeholder, at)
    return after_read(placeholder._replace(failures=0, denials=()), job, at)


def _denied(placeholder: Placeholder, at: Context) -> Placeholder:
    """slurmctld answers, and has no job under the id either: it made none. A plugin may refuse a job
    without a word (job_submit.lua's `return slurm.ERROR`), and again and again."""
    if len(placeholder.denials) == _DENIALS:
        return refused(placeholder, Refusal(f"{_NEVER}: {placeholder.denials[-1]}"), at.now)
    later = at.now + at.rules.delay(Remedy.AGAIN, len(placeholder.denials))
    return placeholder._replace(exists=False, failures=0, not_before=later)


def _not_taken(placeholder: Placeholder, failure: Failure, at: Context) -> Placeholder:
    if placeholder.failures:
        # An earlier one has arrived, or may have, for all that is said of this: it is looked for.
        return placeholder._replace(exists=True, failures=0)
    if failure.remedy is Remedy.CHANGE:
        values = refused_values(failure, placeholder.pod.request, at)
        return refused(placeholder, Refusal(f"{_NEVER}: {failure.message}{values}"), at.now)
    if failure.remedy is Remedy.NO_ROOM and placeholder.immediate:
        following = placeholder.attempt_try + 1
        numbered = placeholder.submitted_as(at.rules.cluster, at.rules.ids, following)
        return numbered._replace(immediate=False)
    return not_now(placeholder, trouble(failure))


def not_now(placeholder: Placeholder, cause: ConditionReason) -> Placeholder:
    """Returns the record of a submission that goes back in line."""
    return placeholder._replace(cause=cause, not_before=inf)


def trouble(failure: Failure) -> ConditionReason:
    """Returns what holds a Pod up, in words for its author."""
    what = "NeedsOperator" if failure.remedy is Remedy.OPERATOR else "Unavailable"
    known = {Remedy.LATER: Reason.SLURM_BUSY, Remedy.NO_ROOM: Reason.PARTITION_CLOSED}
    reason = known.get(failure.remedy) or Reason(f"{failure.system}{what}")
    return ConditionReason(reason, f"{failure.message}; the Pod waits and the request is repeated")
