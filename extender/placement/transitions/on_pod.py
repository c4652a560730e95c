"""Reactions of a placeholder to news of Pods. Each function returns the next version of the record."""

from bisect import bisect
from collections.abc import Iterable
from typing import Any

from extender.explain.cause import Cause, Kind
from extender.jobs.claim import own_key
from extender.jobs.phase import Phase
from extender.placement.transitions.kept_back import asking_first
from extender.placement.transitions.lingering import lingering
from extender.placement.transitions.moves import ask_again
from extender.pod_request.job_request import Request
from extender.pod_request.pod import Pod
from extender.record.config import Context
from extender.record.member import Member
from extender.record.members import Members
from extender.record.placeholder import Placeholder
from extender.record.states import ASKED, OVER, UNBOUND, WITHOUT_JOB, State
from extender.record.why_invalid import WhyInvalid
from wellknown.allocation import Allocation

_OFFER_S = 0.2  # time for other replicas to report kube-scheduler's offer
_WRITES = frozenset({State.ALLOCATED, State.REPLACING, State.EVICTING})
_NUMBERED = frozenset({State.BOUND, State.EVICTING})
"""States of bound Pods. A bound Pod gets no further attempt, so a later attempt number on such a Pod is
forged."""


# The allocation on a Pod. The allocation places the Pod, or may still place the Pod, even if another
# client wrote the allocation.


def with_carried(record: Placeholder, at: Context, uid: str | None = None) -> Placeholder:
    """Returns the record with the allocation that is written on one Pod, or on each Pod if `uid` is
    None. An allocation counts only for a member without a slot, and only in the same attempt. The
    record may not know the allocation because the record is new, or because a deposed replica has
    written the allocation. The extender trusts an allocation if the Pod may have a job with this id
    (`own_key`), because no user can forge the id. Slurm then reports the state of the job, as for any
    other job."""
    for member in record.members if uid is None else filter(None, [record.member(uid)]):
        carried = member.pod.scheduling.allocation
        if carried is not None and member.slot is None:
            record = _with_carried(record, member.pod, carried, at)
    return record


def _with_carried(record: Placeholder, pod: Pod, carried: Allocation, at: Context) -> Placeholder:
    if carried.job_id != record.job.id:
        key = own_key(carried.job_id, pod, at.rules)
        if key is None or key.attempt != record.attempt:
            return record
        if record.state is State.EVICTING:  # the Pod may be bound there; the job has ended all the same
            return record.with_member(pod, slot=carried)
        record = record.submitted_as(key.attempt_try, at.rules)
    if record.state in WITHOUT_JOB | ASKED:
        record = record.move(State.ALLOCATED, at.now)
        if record.lacking:  # news of other Pods may follow
            record = record.with_retry(unbound_by=at.now + at.rules.unbound_deadline)
    if record.state in (State.ALLOCATED, State.BOUND):
        record = record.with_phase(Phase.SUSPECT, at.now)
    member = record.member(pod.uid)
    # The Pod already has the allocation, so the next version of the Pod may already show a rejection.
    cleared = member is not None and not member.rejects(carried.job_id)
    known = record.with_asked(immediate=False)
    return known.with_member(pod, slot=carried, rejection_cleared=cleared)


# A Pod of the placeholder was bound


def bound_elsewhere(record: Placeholder, pod: Pod, at: Context) -> Placeholder:
    """Returns the record without a Pod that another scheduler has bound. The Pod continues to run. The
    extender ends the job, unless other members of a gang are bound."""
    return after_end(record, pod.uid, at.now, Kind.POD_BOUND_ELSEWHERE)


def bound_by_its_job(record: Placeholder, pod: Pod, at: Context) -> Placeholder:
    """Returns the record after a Pod was bound by the job. In ALLOCATED, a group counts as bound when
    its last Pod is bound. In REPLACING, a replica has bound the Pod before the leader could write the
    next attempt onto the Pod. If the job may still bind the rest of the group, the extender waits for
    these Bindings. Otherwise the extender evicts the whole group."""
    member = record.member(pod.uid)
    if member is None or member.slot is None or member.slot.node != pod.life.node:
        return bound_elsewhere(record, pod, at)
    if record.all_bound and not record.lacking:
        return now_bound(record, at)
    if record.state is State.ALLOCATED:
        return record
    return _allocated_again(record, at) if _may_bind_the_rest(record) else _in_part(record, at)


def _may_bind_the_rest(record: Placeholder) -> bool:
    """Returns True if the job may still bind all other Pods: no Pod is missing, each Pod has the
    allocation, and the extender has begun nothing that ends the attempt."""
    placed = all(
        record.is_by_its_job(each.pod) and not each.write.done for each in record.unbound_members
    )
    ends = record.lacking or record.job.over or record.lingering or record.retry.in_flight
    return placed and not ends


def _allocated_again(record: Placeholder, at: Context) -> Placeholder:
    again = record.move(State.ALLOCATED, at.now).with_phase(Phase.SUSPECT, at.now)
    return again.with_retry(unbound_by=at.now + at.rules.unbound_deadline)


def _in_part(record: Placeholder, at: Context) -> Placeholder:
    return record.move(State.EVICTING, at.now, cause=record.cause or Cause.of(Kind.GANG_BROKEN))


def now_bound(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record after the last of its Pods was bound."""
    if record.job.phase is Phase.LOST:
        bound = record.move(State.BOUND, at.now)
        return bound if bound.leaving else ask_again(bound, at)
    if record.job.over:
        return record.move(State.EVICTING, at.now, cause=record.cause)
    bound = record.move(State.BOUND, at.now)
    if bound.job.asked.immediate or bound.job.unverified:
        return bound
    # A killed slurmctld may forget the start of a job that has waited, and may start the job elsewhere
    # before the next read. Therefore the extender reads the job once more after `slurmctld_save_time`.
    later = at.now + at.rules.slurmctld_save_time
    return bound.with_job(unread=True).with_retry(not_before=later)


def bound_later(record: Placeholder, pod: Pod, at: Context) -> Placeholder:
    """BOUND: returns the record after a Pod was seen on a Node. Another scheduler may have bound a Pod
    that replaces a member of a gang."""
    member = record.member(pod.uid)
    has_slot = member is not None and member.slot is not None and member.slot.node == pod.life.node
    return record if has_slot or record.workload.size == 1 else bound_elsewhere(record, pod, at)


# The user changes the request. `before` is the request before the change.


def changed(record: Placeholder, _before: Request, _at: Context) -> Placeholder:
    """Returns the record after a change of the request. The grant is not affected."""
    return record.with_rejections(forbidden_because=None).with_mistrust(denials=0, not_started=0)


def invalid_changed(record: Placeholder, before: Request, at: Context) -> Placeholder:
    """INVALID: the extender requests the job again."""
    moved = changed(record, before, at).move(State.SEEN, at.now)
    return moved.with_rejections(asks_from=max(at.now, record.rejections.asks_from))


def asked_changed(record: Placeholder, before: Request, at: Context) -> Placeholder:
    """SUBMITTING, QUEUED: the extender requests another job, or excludes other Nodes."""
    asked, request = changed(record, before, at), record.request
    if request.job != before.job or request.problems:
        return asked.move(State.REPLACING, at.now, cause=Cause.of(Kind.REQUEST_CHANGED))
    return asked.with_retry(not_before=0.0) if asked.state is State.QUEUED else asked


def allocated_changed(record: Placeholder, before: Request, at: Context) -> Placeholder:
    """ALLOCATED: a user may have resized the Pod, if no policy rejects the resize. Therefore /bind reads
    the job."""
    return changed(record, before, at).with_asked(immediate=False)


# The extender has seen another version of a Pod, without the changes above


def with_version(record: Placeholder, member: Member, pod: Pod) -> Placeholder:
    """Returns the record with a new version of a Pod. A bound Pod keeps its request, even if the user
    requests something else or the cluster's rules change. If the known request has problems, only an
    earlier leader knew the request by which the Pod was bound. Then the request of the new version
    counts."""
    request = member.pod.request
    if record.state is State.BOUND and not request.problems and pod.request is not request:
        pod = pod._replace(request=request)
    message = "" if pod.life.node is not None else pod.scheduling.node_rejection or member.last_rejection
    left = member.left_with(pod)
    record = record.with_member(pod, pod=pod, unlisted=False, last_rejection=message, left_slots=left)
    if pod.request is request or (record.workload.size > 1 and pod.request == request):
        return record  # the joint request stays; a group may have many Pods
    return record._replace(request=record.workload.request([each.request for each in record.pods]))


def is_only_newer(before: Placeholder, after: Placeholder, uid: str) -> bool:
    """Returns True if a new version of a placed Pod has no consequence. Many versions have no
    consequence: the watch shows the extender's own writes, and the kubelet writes several versions.
    `before` and `after` are the record without and with the new version of the Pod with this uid."""
    if not before.state is after.state in (State.ALLOCATED, State.BOUND):
        return False
    if not (before.job is after.job and before.retry is after.retry and before.cause is after.cause):
        return False
    old, new = before.member(uid), after.member(uid)
    if old is None or new is None or before.unlisted or len(before.members) != len(after.members):
        return False
    if before.request is not after.request or old.pod.request is not new.pod.request:
        return False
    if after.state is State.ALLOCATED and new.rejects(after.job.id):
        return False
    return _placed(old) == _placed(new)


def _placed(member: Member) -> tuple[Any, ...]:
    pod = member.pod
    named = pod.life.node, pod.scheduling.job_id, pod.scheduling.attempt, pod.scheduling.allocation
    return (member.slot, member.write, *named)


def joined(record: Placeholder, pod: Pod, at: Context) -> Placeholder:
    """Returns the record with a group's next Pod. A group with a job takes only a Pod that this job has
    placed. If the group is full, such a Pod replaces a member without the job. In this case another
    replica placed the group, and did not know this member. While Pods of a waiting group come, the
    extender reports nothing: a controller may create hundreds of Pods, and each report is two writes."""
    members = record.members
    if record.is_by_its_job(pod) and not record.lacking:
        idle = next((each for each in members if not record.is_by_its_job(each.pod)), None)
        members = Members(each for each in members if each is not idle)
    having = record if members is record.members else grouped(record, members)
    if not having.takes(pod) or pod.over:
        return record
    after = _with_another(having, pod)
    if after.state is State.SEEN:
        quiet_until = at.now + at.rules.report_after
        return after.with_retry(not_before=quiet_until).with_member(pod, quiet_until=quiet_until)
    if after.state is State.BOUND and pod.life.node is None:  # the job has the slot of the lost member
        return after.with_job(unread=True).with_retry(not_before=0.0)
    return after


def left_out(before: Placeholder, record: Placeholder, pod: Pod) -> dict[str, Pod]:
    """Returns, by uid, the Pods that wait for a place in their group's record after a Pod of the group
    was seen. These may be the seen Pod, and the Pod that the seen Pod has replaced."""
    is_member = record.member(pod.uid) is not None
    is_new = is_member and before.member(pod.uid) is None
    seen = [pod] if record.state in OVER or not is_member else []
    if len(record.members) - is_new < len(before.members):  # another Pod, or this one, has left
        members = {each.pod.uid for each in record.members}
        seen += [m.pod for m in before.members if m.pod.uid not in members and m.pod.uid != pod.uid]
    waits = (each for each in seen if each.life.node is None or each.scheduling.attempt > record.attempt)
    return {each.uid: each for each in waits if not each.over}


def kept_out(record: Placeholder) -> Cause:
    """Returns why a group does not take another Pod now."""
    if record.lacking:
        return Cause.of(Kind.GANG_BEGUN)
    return Cause.of(Kind.GANG_FULL, size=record.workload.size)


def may_begin_again(record: Placeholder, now: float) -> bool:
    """Returns True if new Pods may take the place of a finished group. If the old Pods were missing from
    a list of all Pods, the old Pods may come back for a while. During this time, new Pods wait."""
    missed = record.cause is not None and record.cause.kind is Kind.POD_MISSED
    return record.state is State.DONE and (now >= record.retry.not_before or not missed)


def begun_again(record: Placeholder, pod: Pod, now: float) -> Placeholder:
    """Returns the record of a finished group that gets a later Pod. The group continues with the next
    attempt, because Slurm may still have the jobs of the last attempts."""
    if pod.scheduling.attempt > record.attempt:  # another replica has begun the attempt
        return Placeholder.of(pod, now)
    again = Placeholder.of(pod, now).with_asked(attempt=record.attempt)._replace(state=State.REPLACING)
    return again.with_phase(Phase.ENDED, now)


def grouped(record: Placeholder, members: Iterable[Member]) -> Placeholder:
    """Returns the record of a group with these Pods, and their joint request."""
    members = Members(sorted(members, key=lambda each: each.pod.rank))
    request = record.workload.request([each.pod.request for each in members])
    return record._replace(members=members, request=request)


def _with_another(record: Placeholder, pod: Pod) -> Placeholder:
    """Returns the record of a group with one Pod more."""
    place = bisect(record.members, pod.rank, key=lambda each: each.pod.rank)
    members = Members((*record.members[:place], Member(pod), *record.members[place:]))
    known = record.members[0].pod.request if record.members else pod.request
    request = record.workload.request_with(record.request, known, pod.request)
    return record._replace(members=members, request=request)


def _without(record: Placeholder, member: Member) -> Placeholder:
    """Returns the record of a group with one Pod less. If the joint request has no problems, the
    requests of all Pods are equal."""
    left = Members(each for each in record.members if each is not member)
    if record.request.problems:
        return grouped(record, left)
    return record._replace(members=left, request=record.workload.request([left[0].pod.request]))


def awaited(record: Placeholder, pod: Pod, _at: Context) -> Placeholder:
    """Makes a write onto a Pod due now, if the write waited for a new version of the Pod. In EVICTING,
    the write is the deletion."""
    member = record.member(pod.uid)
    if record.state not in _WRITES or member is None:
        return record
    write = member.write
    waits = write.not_before and not (write.done or write.failures)
    return record.with_writes([pod], not_before=0.0) if waits else record


def unbound(record: Placeholder, pod: Pod, before: Pod, at: Context) -> Placeholder:
    """Returns the record after a new version of an unbound Pod. A rejection by kube-scheduler counts
    only after a version without a rejection. kube-scheduler's offer of Nodes appears on the Pod shortly
    after the condition, because any replica may write the offer."""
    member = record.member(pod.uid)
    if record.state is not State.ALLOCATED or member is None or pod.scheduling.allocation != member.slot:
        return awaited(record, pod, at)
    if not member.rejects(record.job.id):
        return record.with_member(pod, rejection_cleared=True)
    if pod.unschedulable and not before.unschedulable and pod.scheduling.feasible_nodes is None:
        return record.with_retry(not_before=max(record.retry.not_before, at.now + _OFFER_S))
    if (
        pod.scheduling.feasible_nodes != before.scheduling.feasible_nodes
        and not record.rejections.waiting_for_departures
    ):
        return record.with_retry(not_before=0.0)
    return record


# Another replica has numbered a later attempt


def is_misnumbered(record: Placeholder, pod: Pod) -> bool:
    """Returns True if the attempt number of a bound Pod is wrong, but the Pod's job is right."""
    return pod.life.node is not None and (
        record.state in _NUMBERED or pod.scheduling.job_id == record.job.id
    )


def renumbered(record: Placeholder, pod: Pod) -> Placeholder | None:
    """Returns the record with the later attempt number, if the workload has no job and all Pods have
    this number; otherwise None."""
    attempt = pod.scheduling.attempt
    if record.state not in WITHOUT_JOB or any(each.scheduling.attempt < attempt for each in record.pods):
        return None
    return asking_first(record.with_asked(attempt=attempt, attempt_try=0))


def overtaken(record: Placeholder, pod: Pod, at: Context) -> Placeholder:
    """Returns the record after another replica has begun a later attempt. If the job of the overtaken
    attempt is still alive, the extender ends the job. The later attempt continues under the same ids."""
    if any(each.pod.life.node is not None for each in record.members if each.pod.uid != pod.uid):
        return record if record.state in _NUMBERED else _in_part(record, at)
    return numbering(record, pod.scheduling.attempt, at)


def numbering(record: Placeholder, attempt: int, at: Context) -> Placeholder:
    """Returns the record of a workload in which only some Pods have the number `attempt`. The extender
    writes the number onto the other Pods before the extender requests a job."""
    without_job = record.state in WITHOUT_JOB
    before = record.with_asked(attempt=attempt - 1)
    if record.state is State.REPLACING:  # this replica or another replica has written the number
        return numbered(before, attempt).with_retry(not_before=0.0)
    over = record.job.over or without_job
    moved = before.move(State.REPLACING, at.now, cause=record.cause if without_job else None)
    moved = moved.with_phase(Phase.ENDED, at.now) if over else moved
    return asking_first(numbered(moved, attempt))


def numbered(record: Placeholder, attempt: int) -> Placeholder:
    """Returns the record in which the write counts as done for all Pods that already have the next
    attempt's number. Until the write is done for the other Pods, the last attempt may still bind the
    other Pods."""
    members = (
        each._replace(slot=None, write=each.write._replace(done=True))
        if each.pod.scheduling.attempt >= attempt
        else each
        for each in record.members
    )
    return record._replace(members=Members(members))


# A Pod of the placeholder is gone


def after_end(record: Placeholder, uid: str, now: float, kind: Kind = Kind.POD_DELETED) -> Placeholder:
    """Returns the record after a Pod is gone, will never run again, or does not need the job. `kind` is
    the kind of the cause. After the last Pod, the extender ends the job. An unbound group does not start
    while a Pod is missing."""
    member = record.member(uid)
    if record.state in OVER or member is None:
        return record
    if len(record.members) == 1:
        record = record.with_members(unlisted=False)
        to = State.DONE if record.state in WITHOUT_JOB else State.RELEASING
        return record.move(to, now, cause=Cause.of(kind))
    left = _without(record, member)
    if left.state is State.BOUND and not left.bound_pods:  # the others waited for slots of members
        return left.move(State.REPLACING, now, cause=Cause.of(Kind.GANG_LACKS_POD))
    return left.move(State.SEEN, now) if left.state is State.INVALID else not_whole(left, now)


def not_whole(record: Placeholder, now: float) -> Placeholder:
    """Returns the record of a group after a Pod is gone. An unbound group starts again."""
    if record.state not in UNBOUND or not record.lacking:
        return record
    return record.replaced(now, Cause.of(Kind.GANG_LACKS_POD))


def after_deletion(record: Placeholder, uid: str, last: Pod | None, now: float) -> Placeholder:
    """Returns the record after a Pod's deletion was seen; `last` is the deleted version."""
    member, ended = record.member(uid), after_end(record, uid, now)
    if ended is record or member is None or last is None:
        return ended
    return lingering(ended, last, member.left_slots, now)


def after_absence(record: Placeholder, uid: str, now: float) -> Placeholder:
    """Returns the record after a list of all Pods lacked a Pod. kube-apiserver may have restarted with
    older data, in which many running Pods are missing. Therefore the eviction limiter decides when the
    Pod counts as deleted."""
    member = record.member(uid)
    if member is None or record.state in WITHOUT_JOB | OVER:
        return after_end(record, uid, now)
    return record.with_member(member.pod, unlisted=True)


def freed(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record after another Pod has left a Node of the record. A delayed allocation may be
    written now."""
    delayed = [each.pod for each in record.members if not (each.write.done or each.write.in_flight)]
    return record.with_writes(delayed, not_before=at.now)


def after_missed(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record without the missing Pods. The eviction limiter has let these Pods count as
    deleted."""
    for member in record.members:
        if member.unlisted:
            record = after_end(record, member.pod.uid, at.now, Kind.POD_MISSED)
            if record.state is State.BOUND:  # another Pod of the gang may get the slot
                record = lingering(record, member.pod, member.left_slots, at.now)
    return record


def is_back(record: Placeholder, pod: Pod) -> bool:
    """Returns True if a missing Pod is back. The Pod then gets a new record, from its annotations and
    its job."""
    back = record.cause is not None and record.cause.kind is Kind.POD_MISSED
    if pod.group is not None:  # the other Pods may have another cause
        back = record.is_by_its_job(pod)
    return back and record.state in OVER and not (pod.life.finished or pod.leaving)


def invalid(record: Placeholder, why: WhyInvalid, now: float) -> Placeholder:
    """Returns the record of a Pod whose request is invalid, with the reason."""
    return record.move(State.INVALID, now, cause=why.shown())
