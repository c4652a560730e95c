"""Reactions of a placeholder's record to the outcome of an effect. Each function returns the next
version of the record."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from extender.explain.cause import Cause, Kind, codes
from extender.jobs.grants import covers
from extender.jobs.phase import Phase
from extender.jobs.verdict import NOT_READ, TAKEN, asked_owner
from extender.placement.transitions.asked import refused
from extender.placement.transitions.attempts import cause_of, give_back, not_now
from extender.placement.transitions.moves import granted
from extender.placement.transitions.on_pod import invalid
from extender.placement.transitions.table import after_read
from extender.pod_request.pod import Pod
from extender.record.config import Context, PlacementConfig
from extender.record.events import (
    CancelJob,
    CheckDepartures,
    Effect,
    EvictPod,
    ExcludeNodes,
    Failure,
    HoldJob,
    OnPod,
    Outcome,
    ReadJob,
    RecordJobId,
    Remedy,
    ReportWaiting,
    Submit,
    WriteAllocation,
    WriteAttempt,
)
from extender.record.member import CONFLICTS, Write
from extender.record.placeholder import REPEATEDLY, Placeholder
from extender.record.states import State
from slurm_client.model import Grant, Job, JobSpec
from wellknown.names import Reason

# Slurm gives these answers to a submission before Slurm checks whether another job has the id.
_ANSWERS = frozenset({Remedy.NO_ROOM, Remedy.CHANGE, Remedy.LATER, Remedy.OPERATOR})
# After these answers, the job may exist under the id, so the extender reads the job.
_LEAVE_OPEN = frozenset({Remedy.ID_TAKEN, Remedy.UNEXPLAINED})
_CONFLICTS = frozenset({Remedy.FRESHER, Remedy.GONE})
_FRESHER_S = 1.0
_DENIALS = 6  # within some six seconds; the extender reads the job after each denial
_WRITTEN_IN: Mapping[type, tuple[State, ...]] = {
    WriteAllocation: (State.ALLOCATED, State.BOUND),
    CheckDepartures: (State.ALLOCATED,),
    WriteAttempt: (State.REPLACING,),
    EvictPod: (State.EVICTING,),
    HoldJob: (State.RELEASING,),
    RecordJobId: (State.BOUND,),
}
"""The states for which each write is made. In any other state, the write's success is ignored."""


def after_outcome(record: Placeholder, outcome: Outcome, at: Context) -> Placeholder:
    """Returns the record after an effect was carried out, or failed."""
    effect, result = outcome.effect, outcome.result
    if outcome.hardware or outcome.rights:
        at = replace(at, hardware=outcome.hardware, rights=outcome.rights)
    if isinstance(effect, ReportWaiting):
        return _after_show(record, effect, result, at)
    if isinstance(effect, ReadJob) and effect.for_words:
        return _after_words(record, effect, result, at)
    if isinstance(effect, OnPod):
        record = record.with_writes([effect.pod], in_flight=False)
    else:
        record = record.with_retry(in_flight=False)
    if isinstance(effect, ReadJob) and effect.job_id != record.job.id:
        return record  # another replica has submitted another job meanwhile, and the record has this job
    if isinstance(result, Failure):
        return _after_failure(record, effect, result, at)
    return record if _stale(record, effect) else _after_success(record, effect, result, at)


def _after_show(record: Placeholder, effect: ReportWaiting, result: Any, at: Context) -> Placeholder:
    """Returns the record after a report on a Pod. If the report failed, or if its cause changes very
    often, the next report waits for a pause."""
    record = record.with_member(effect.pod, reporting=False)
    pause = at.rules.reason_interval
    if not isinstance(result, Failure):
        record = record.with_member(effect.pod, shown=effect.cause)
        # The first cause changes with each Node, the second cause with each new Pod of a gang.
        if effect.cause.reason not in (Reason.NO_ELIGIBLE_NODE, Reason.PODS_MISSING):
            return record
    elif result.remedy is Remedy.FRESHER:
        pause = at.rules.report_after
    return record.with_member(effect.pod, quiet_until=at.now + pause)


def _after_words(record: Placeholder, effect: ReadJob, result: Any, at: Context) -> Placeholder:
    """Returns the record after a read of the reason why the job waits. Ignores the reply if the state
    has changed since the request. If another effect is under way, the time of the next effect stays the
    same."""
    asked, record = record.retry.asked_why, record.with_retry(asked_why=None)
    waits = record.state is State.QUEUED and record.job.id == effect.job_id
    if not waits or asked is None or asked < record.since:
        return record
    after = _after_failure if isinstance(result, Failure) else _after_success
    answered = after(record, effect, result, at)
    if record.retry.in_flight and answered.state is State.QUEUED:
        return answered.with_retry(not_before=record.retry.not_before, failures=record.retry.failures)
    return answered


def _after_success(record: Placeholder, effect: Effect, result: Any, at: Context) -> Placeholder:
    match effect:
        case ReadJob():
            return _after_look(record, result, at)
        case CancelJob() if record.state in (State.RELEASING, State.REPLACING):
            return _cancelled(record, effect, at)
        case Submit():
            return _taken(record, effect, result, at)
        case ExcludeNodes():
            return record.with_asked(excluded=effect.nodes).with_retry(failures=0)
        case CheckDepartures():
            return _looked(record, result, at)
        case HoldJob():
            return record.with_writes(record.pods, done=True).with_retry(failures=0, not_before=at.now)
        case WriteAllocation() | WriteAttempt() | EvictPod() | RecordJobId():
            return _written(record, effect, result, at)
    return record


def _cancelled(record: Placeholder, effect: CancelJob, at: Context) -> Placeholder:
    """Returns the record after a cancellation. If the cancellation named no job name, the extender reads
    the job before the next cancellation, because the id may belong to another job."""
    doubted = record if effect.name is not None else record.with_job(unread=True)
    return doubted.with_retry(failures=0, not_before=at.now + at.rules.recancel)


def _written(record: Placeholder, effect: OnPod, result: Any, at: Context) -> Placeholder:
    later = at.now + _pause(effect, at.rules)
    record = record.with_writes([effect.pod], done=True, failures=0, not_before=later)
    member = record.member(effect.pod.uid)
    if member is None:
        return record
    if isinstance(effect, WriteAllocation):
        pod = _as_written(member.pod, effect, result)
        shown = None if effect.nominate else member.shown  # the condition has another cause now
        written = record.with_member(pod, pod=pod, shown=shown, last_rejection="")
        if record.state is State.BOUND:
            return written
        by = at.now + at.rules.unbound_deadline
        waited = record.cause is not None and record.cause.kind is Kind.CORES_IN_USE
        return (written._replace(cause=None) if waited else written).with_retry(unbound_by=by)
    if isinstance(effect, WriteAttempt) and effect.cause is not None:
        record = record.with_member(effect.pod, shown=effect.cause)
    return record


def _pause(effect: Effect, rules: PlacementConfig) -> float:
    """Returns the pause after which a write may be repeated, because other clients may undo the
    write."""
    if isinstance(effect, EvictPod):
        return rules.reevict
    return rules.job_id_rewrite_pause if isinstance(effect, RecordJobId) else 0.0


def _as_written(pod: Pod, effect: WriteAllocation, version: str) -> Pod:
    """Returns the Pod as the extender has written the Pod. The record needs this version because
    kube-scheduler may bind the Pod before the watch shows the write."""
    allocation = effect.allocation
    if pod.scheduling.allocation == allocation:
        return pod
    written = pod.with_scheduling(
        allocation=allocation,
        job_id=allocation.job_id,
        gates=pod.other_gates,
        feasible_nodes=None,
        attempt=effect.attempt or pod.scheduling.attempt,
    )
    return written._replace(resource_version=version)


def _looked(record: Placeholder, vacated_in: float, at: Context) -> Placeholder:
    """Returns the record after the check (`CheckDepartures`) of the Node that kube-scheduler rejected.
    If Pods are leaving the Node, the extender waits for the end of these Pods. If kube-scheduler still
    rejects the Node afterwards, the extender writes the allocation again, so that kube-scheduler's next
    message is about the Node without these Pods.

    The first rejection for lack of room never ends the attempt, because a deleted Pod may stay in
    kube-scheduler's view. After an outage of kube-apiserver, a deleted Pod may stay there for half a
    minute. A new allocation reaches kube-scheduler after the deletion, by the same watch."""
    if not record.node_rejected:
        return record
    rejections = record.rejections
    lacks_room = any(pod.scheduling.lacks_room for pod in record.pods)
    asked_again = rejections.rejection_counts or rejections.waiting_for_departures
    if not vacated_in and lacks_room and not asked_again:
        vacated_in = at.rules.report_after
    if vacated_in > 0:
        clear = at.now + vacated_in
        by = max(record.retry.unbound_by, clear + at.rules.unbound_deadline)
        waiting = record.with_retry(unbound_by=by).with_rejections(waiting_for_departures=True)
        return waiting.with_retry(failures=0, not_before=clear)
    if rejections.waiting_for_departures:
        anew = record.with_members(write=Write(), rejection_cleared=False).with_retry(failures=0)
        return anew.with_rejections(waiting_for_departures=False, rejection_counts=True)
    return give_back(record, at)


def _stale(record: Placeholder, effect: Effect) -> bool:
    """Returns True if the write was made for a state that the record has left."""
    return record.state not in _WRITTEN_IN.get(type(effect), (record.state,))


def _taken(record: Placeholder, effect: Submit, grant: Grant | None, at: Context) -> Placeholder:
    verdict = TAKEN if effect.job_id == record.job.id else NOT_READ
    record = record.with_job(verdict=verdict).with_mistrust(denials=0)
    if record.state is State.BOUND:
        return _asked_again(record, at)
    if record.state is not State.SUBMITTING:
        return record
    if effect.immediate:
        return _granted_at_once(record, grant, effect.job, at)
    excluded, owner = effect.job.excluded_nodes, asked_owner(effect.job)
    queued = record.move(State.QUEUED, at.now).with_asked(excluded=excluded, owner=owner)
    return queued.with_retry(not_before=at.now + at.rules.report_after)


def _granted_at_once(
    record: Placeholder, grant: Grant | None, asked: JobSpec, at: Context
) -> Placeholder:
    """Returns the record after Slurm accepted a request for an immediate job. The extender reads the job
    if the grant is unknown, or if Slurm queued the job because of a partition's limit."""
    if record.state is State.SUBMITTING and grant is not None and covers(grant, asked):
        return granted(record.move(State.ALLOCATED, at.now), record.job.known_id, grant, at)
    return record.with_job(unread=True) if record.state is State.SUBMITTING else record


def _asked_again(record: Placeholder, at: Context) -> Placeholder:
    until = at.now + at.rules.report_after
    suspect = record.with_phase(Phase.SUSPECT, at.now).with_mistrust(misses=0)
    return suspect.with_retry(failures=0, not_before=until)


def _after_failure(record: Placeholder, effect: Effect, failure: Failure, at: Context) -> Placeholder:
    if isinstance(effect, OnPod):
        return _write_failed(record, effect, failure, at)
    if isinstance(effect, Submit) and record.state is State.SUBMITTING:
        record = record.with_asked(excluded=effect.job.excluded_nodes)
        if failure.remedy in _LEAVE_OPEN:
            return _left_open(record, failure)
        if failure.remedy in _ANSWERS:
            return _not_taken(record, failure, at)
        record = record.with_job(unread=False)
    if record.has_lost_job and failure.remedy is Remedy.ID_TAKEN:  # the job has come back
        return _asked_again(record, at)
    return _failed(record, effect, failure, at)


def _failed(record: Placeholder, effect: Effect, failure: Failure, at: Context) -> Placeholder:
    if failure.remedy is Remedy.OTHER_JOB:
        renamed = record.job.mistrust.renamed
        pause = at.rules.delay(Remedy.LATER, renamed) if renamed else 0.0
        doubted = record.with_job(unread=True).with_mistrust(renamed=renamed + 1)
        return doubted.with_retry(not_before=at.now + pause)
    if failure.remedy in _CONFLICTS:
        return record.with_retry(not_before=at.now + _FRESHER_S)
    later = at.now + at.rules.delay(failure.remedy, record.retry.failures)
    held_up = record.with_retry(failures=record.retry.failures + 1, not_before=later)
    if isinstance(effect, ReadJob) and record.job.phase is Phase.SUSPECT:
        # Slurm has a limited time to start the job once more. This time begins only when Slurm answers
        # again.
        held_up = held_up.with_job(since=at.now)
    return _with_words(held_up, failure)


def _write_failed(record: Placeholder, effect: OnPod, failure: Failure, at: Context) -> Placeholder:
    """Returns the record after a failed write onto a Pod. If the Pod has changed, the watch has shown
    the Pod's next version already, or will soon show this version. If other clients keep the extender
    from writing an allocation, the allocation is given back at the deadline for the Binding."""
    member = record.member(effect.pod.uid)
    if member is None:
        return record
    write, later = member.write, at.now + _FRESHER_S
    if failure.remedy not in _CONFLICTS:
        later = at.now + at.rules.delay(failure.remedy, write.failures)
        return record.with_writes([member.pod], failures=write.failures + 1, not_before=later)
    if isinstance(effect, RecordJobId) or _stale(record, effect):
        return record.with_writes([member.pod], not_before=later)
    version, conflicts = effect.pod.resource_version, write.conflicts
    if version not in conflicts:  # otherwise the watch is late: this version has failed before
        conflicts = (*conflicts, version)[-CONFLICTS:]
    fresher = version != member.pod.resource_version
    again = record.with_writes([member.pod], conflicts=conflicts, not_before=0.0 if fresher else later)
    if again.state is State.ALLOCATED:
        by = min(again.retry.unbound_by, at.now + at.rules.unbound_deadline)
        again = again.with_retry(unbound_by=by)
    return again


def _with_words(record: Placeholder, failure: Failure) -> Placeholder:
    """Returns the record with a cause for users, if the failure delays a submission. Also adds a cause
    if Slurm has repeatedly refused a request about a waiting job, or about the job of a running Pod."""
    if record.state is State.SUBMITTING:
        return record._replace(cause=cause_of(failure))
    goes_on = record.state in (State.QUEUED, State.BOUND)
    refuses = failure.remedy in (Remedy.CHANGE, Remedy.UNEXPLAINED)
    if not refuses or record.retry.failures < REPEATEDLY or not goes_on:
        return record
    cause = Cause.of(Kind.UPDATE_REFUSED, job=record.job.id, message=failure.message)
    return record._replace(cause=replace(cause, outlook=codes(failure.codes)))


def _left_open(record: Placeholder, failure: Failure) -> Placeholder:
    denials = min(record.job.mistrust.denials + 1, _DENIALS)
    last = denials == _DENIALS  # the last denial or a later denial: the Pod's author has the message
    cause = record.cause if last else cause_of(failure)
    doubted = record._replace(cause=cause).with_job(unread=True).with_mistrust(denials=denials)
    return doubted.with_retry(failures=0, denied=failure)


def _after_look(record: Placeholder, job: Job | None, at: Context) -> Placeholder:
    if record.job.mistrust.denials and record.state is State.SUBMITTING and job is None:
        return _denied(record, at)
    return after_read(record.with_mistrust(denials=0).with_retry(failures=0), job, at)


def _denied(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record after a failed submission for which Slurm gave no cause and created no job. A
    plugin may refuse a job without a message (job_submit.lua's `return slurm.ERROR`). After several such
    denials, the Pod is rejected."""
    denials, denied = record.job.mistrust.denials, record.retry.denied
    if denials == _DENIALS and denied is not None:
        return invalid(record, refused(denied, record.request, at), at.now)
    later = at.now + at.rules.delay(Remedy.AGAIN, denials)
    return record.with_job(unread=False).with_retry(failures=0, not_before=later)


def _not_taken(record: Placeholder, failure: Failure, at: Context) -> Placeholder:
    if record.retry.failures:
        # An earlier request may have arrived, so the extender reads the job.
        return record.with_job(unread=True).with_retry(failures=0)
    if failure.remedy is Remedy.CHANGE:
        return invalid(record, refused(failure, record.request, at), at.now)
    if failure.remedy is Remedy.NO_ROOM and record.job.asked.immediate:
        return record.next_try(at.rules).with_asked(immediate=False)
    return not_now(record, cause_of(failure))
