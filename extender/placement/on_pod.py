"""What Kubernetes' news of a Pod means for its placeholder: each function returns the next record."""

from collections.abc import Iterable
from typing import Any

from extender.jobs.claim import own_key
from extender.jobs.phase import Phase
from extender.placement.kept_back import asking_first
from extender.placement.lingering import lingering
from extender.placement.moves import ask_again
from extender.record.condition_reason import ConditionReason, WhyInvalid
from extender.record.config import Context
from extender.record.member import Member
from extender.record.placeholder import Placeholder
from extender.record.states import ASKED, OVER, UNBOUND, WITHOUT_JOB, State
from extender.request.job_request import Request
from extender.request.pod import Pod
from wellknown.allocation import Allocation
from wellknown.names import Reason

_OFFER_S = 0.2  # how long other replicas have to say what kube-scheduler offered
_WRITES = frozenset({State.ALLOCATED, State.REPLACING, State.EVICTING})
_ELSEWHERE = "Pod was bound without this job"
_NUMBERED = frozenset({State.BOUND, State.EVICTING})
"""A Pod that is bound gets no other attempt: a number that says so is forged."""
MISSED = "Pod is not among all Pods any more"


# The allocation that a Pod carries: whoever wrote it there, the Pod is placed by it, or may yet be


def with_carried(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record with the allocations that its Pods carry, where it has none for them and those
    are of its attempt. It may know nothing of them: another replica that believed to lead wrote them, or
    the record is new. They are believed where the id that they name is the Pod's own (`own_key`), which
    nobody can forge; what has become of the job is then for Slurm to say, like of any other."""
    for member in record.members:
        carried = member.pod.allocation
        if carried is not None and member.slot is None:
            record = _with_carried(record, member.pod, carried, at)
    return record


def _with_carried(record: Placeholder, pod: Pod, carried: Allocation, at: Context) -> Placeholder:
    if carried.job_id != record.job.id:
        key = own_key(carried.job_id, pod, at.rules)
        if key is None or key.attempt != record.attempt:
            return record
        if record.state is State.EVICTING:  # it may be bound there; its job is over all the same
            return record.with_member(pod, slot=carried)
        record = record.submitted_as(key.attempt_try, at.rules)
    if record.state in WITHOUT_JOB | ASKED:
        record = record.move(State.ALLOCATED, at.now)
        if record.lacking:  # the others are heard of next, if they are there
            record = record.with_retry(unbound_by=at.now + at.rules.unbound_deadline)
    if record.state in (State.ALLOCATED, State.BOUND):
        record = record.with_phase(Phase.SUSPECT, at.now)
    member = record.member(pod.uid)
    # Nothing need be written onto it: it may be that no other version is seen before it is rejected.
    cleared = member is not None and not member.rejects(carried.job_id)
    known = record.with_asked(immediate=False)
    return known.with_member(pod, slot=carried, rejection_cleared=cleared)


# A Pod of it was seen to be bound


def bound_elsewhere(record: Placeholder, pod: Pod, at: Context) -> Placeholder:
    """A Pod that someone else bound has no use for our job: it is given back, the Pod stays."""
    return after_end(record, pod.uid, at.now, _ELSEWHERE)


def bound_by_its_job(record: Placeholder, pod: Pod, at: Context) -> Placeholder:
    """ALLOCATED: a group is bound with its last Pod. REPLACING: /bind was faster than we were; a group
    that is bound in part goes whole."""
    member = record.member(pod.uid)
    if member is None or member.slot is None or member.slot.node != pod.node:
        return bound_elsewhere(record, pod, at)
    if record.all_bound and not record.lacking:
        return now_bound(record, at)
    if record.state is State.ALLOCATED:
        return record
    return _in_part(record, at)


def _in_part(record: Placeholder, at: Context) -> Placeholder:
    words = "its group cannot be bound whole any more"
    part = ConditionReason(Reason.POD_OF_GROUP_GONE, words)
    return record.move(State.EVICTING, at.now, cause=record.cause or part)


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
    # A slurmctld that is killed may forget that it started a job that had waited, and start it elsewhere
    # before anybody asks: it is read once more when that is past.
    later = at.now + at.rules.saved
    return bound.with_job(unread=True).with_retry(not_before=later)


# Its author asks for something else; `before`: what was asked for until then


def changed(record: Placeholder, _before: Request, _at: Context) -> Placeholder:
    """What it has been granted is not affected."""
    return record.with_rejections(forbidden_because=None).with_mistrust(denials=0, not_started=0)


def invalid_changed(record: Placeholder, before: Request, at: Context) -> Placeholder:
    """INVALID: it is asked for again."""
    moved = changed(record, before, at).move(State.SEEN, at.now)
    return moved.with_rejections(asks_from=max(at.now, record.rejections.asks_from))


def asked_changed(record: Placeholder, before: Request, at: Context) -> Placeholder:
    """SUBMITTING, QUEUED: another job is asked for; or other Nodes are closed to it now."""
    asked, request = changed(record, before, at), record.request
    if request.job != before.job or request.problems:
        cause = ConditionReason(Reason.CHANGED, "the Pod asks for something else than its job")
        return asked.move(State.REPLACING, at.now, cause=cause)
    return asked.with_retry(not_before=0.0) if asked.state is State.QUEUED else asked


def allocated_changed(record: Placeholder, before: Request, at: Context) -> Placeholder:
    """ALLOCATED: it was resized, perhaps, where no policy refuses that: /bind reads its job."""
    return changed(record, before, at).with_asked(immediate=False)


# Another version of a Pod was seen, with nothing of that


def with_version(record: Placeholder, member: Member, pod: Pod) -> Placeholder:
    """A Pod that is bound runs by what was asked for, whatever is asked, or allowed, from then on.
    Where only an earlier leader knew that, and this one a request that is forbidden, the next counts."""
    request = member.pod.request
    same = pod.request == request or (record.state is State.BOUND and not request.problems)
    if same and pod.request is not request:
        pod = pod._replace(request=request)
    said = "" if pod.node is not None else pod.node_rejection or member.said
    record = record.with_member(pod, pod=pod, unlisted=False, said=said)
    if pod.request is request:
        return record
    return record._replace(request=record.workload.request([each.request for each in record.pods]))


def is_only_newer(before: Placeholder, after: Placeholder) -> bool:
    """Tells whether there is only another version of a placed Pod, of which nothing follows: what
    the extender has written comes back, and its kubelet writes several."""
    if not before.state is after.state in (State.ALLOCATED, State.BOUND) or before.unlisted:
        return False
    if not (before.job is after.job and before.retry is after.retry and before.cause is after.cause):
        return False
    if before.request is not after.request or before.members[0].pod.request is not after.lead.request:
        return False
    if after.state is State.ALLOCATED and after.node_rejected:
        return False
    return _placed(before.members[0]) == _placed(after.members[0])


def _placed(member: Member) -> tuple[Any, ...]:
    pod = member.pod
    named = pod.node, pod.job_id, pod.attempt, pod.allocation
    return (member.slot, member.write, *named)


def joined(record: Placeholder, pod: Pod) -> Placeholder:
    """A group's next Pod. One that comes when the group has its job already is not one of it, unless it
    is placed by that: then a Pod that is not gives way, which another replica knows nothing of."""
    members = record.members
    if record.is_by_its_job(pod) and not record.lacking:
        idle = next((each for each in members if not record.is_by_its_job(each.pod)), None)
        members = tuple(each for each in members if each is not idle)
    having = record if members is record.members else grouped(record, members)
    return _with_another(having, pod) if having.takes(pod) and not pod.over else record


def left_out(before: Placeholder, record: Placeholder, pod: Pod) -> dict[str, Pod]:
    """Returns the Pods, by uid, that wait for a place in their group's record after a Pod of it was
    seen: that one, or one that had to give way to it."""
    seen = [pod] if record.state in OVER or record.member(pod.uid) is None else []
    members = {each.pod.uid for each in record.members}
    gave_way = (each.pod for each in before.members if each.pod.uid not in members)
    seen += [each for each in gave_way if each.uid != pod.uid]
    waits = (each for each in seen if each.node is None or each.attempt > record.attempt)
    return {each.uid: each for each in waits if not each.over}


def kept_out(record: Placeholder) -> ConditionReason:
    """Returns why a group does not take another Pod now."""
    full = f"its group has its {record.workload.size} Pods already"
    begun = "its group began without it: it waits until that is over"
    return ConditionReason(Reason.NOT_IN_GROUP, begun if record.lacking else full)


def may_begin_again(record: Placeholder, now: float) -> bool:
    """Tells whether new Pods of a group that is over may take its place. Those that a list of all Pods
    lacked may be back for a while."""
    missed = record.cause is not None and record.cause.message == MISSED
    return record.state is State.DONE and (now >= record.retry.not_before or not missed)


def begun_again(record: Placeholder, pod: Pod, now: float) -> Placeholder:
    """Returns the record of a group that is over, with a Pod that came since: its attempt is the next,
    for Slurm may have the jobs of the last ones still."""
    if pod.attempt > record.attempt:  # another replica has begun it
        return Placeholder.of(pod, now)
    again = Placeholder.of(pod, now).with_asked(attempt=record.attempt)._replace(state=State.REPLACING)
    return again.with_phase(Phase.ENDED, now)


def grouped(record: Placeholder, members: Iterable[Member]) -> Placeholder:
    """Returns the record of a group with these Pods, and with what they ask for together."""
    members = tuple(sorted(members, key=lambda each: each.pod.name))
    request = record.workload.request([each.pod.request for each in members])
    return record._replace(members=members, request=request)


def _with_another(record: Placeholder, pod: Pod) -> Placeholder:
    """Returns the record of a group with one Pod more."""
    members = tuple(sorted((*record.members, Member(pod)), key=lambda each: each.pod.name))
    first = members[0].pod.request
    request = record.workload.request_with(record.request, first, pod.request)
    return record._replace(members=members, request=request)


def _without(record: Placeholder, member: Member) -> Placeholder:
    """Returns the record of a group with one Pod less. Without problems, all Pods ask for the same."""
    left = tuple(each for each in record.members if each is not member)
    if record.request.problems:
        return grouped(record, left)
    return record._replace(members=left, request=record.workload.request([left[0].pod.request]))


def awaited(record: Placeholder, pod: Pod, _at: Context) -> Placeholder:
    """A write (EVICTING: the deletion) may have waited for this version of the Pod."""
    member = record.member(pod.uid)
    if record.state not in _WRITES or member is None:
        return record
    write = member.write
    waits = write.not_before and not (write.done or write.failures)
    return record.with_writes([pod], not_before=0.0) if waits else record


def unbound(record: Placeholder, pod: Pod, before: Pod, at: Context) -> Placeholder:
    """A rejection counts once the Pod was seen without one. What was offered instead comes a moment
    after the condition, from whichever replica was asked."""
    member = record.member(pod.uid)
    if record.state is not State.ALLOCATED or member is None or pod.allocation != member.slot:
        return awaited(record, pod, at)
    if not member.rejects(record.job.id):
        return record.with_member(pod, rejection_cleared=True)
    if pod.unschedulable and not before.unschedulable and pod.feasible_nodes is None:
        return record.with_retry(not_before=max(record.retry.not_before, at.now + _OFFER_S))
    if pod.feasible_nodes != before.feasible_nodes and not record.rejections.waiting_for_departures:
        return record.with_retry(not_before=0.0)
    return record


# Another replica has numbered a later attempt: ours is over


def is_misnumbered(record: Placeholder, pod: Pod) -> bool:
    """Tells whether the number of a Pod's attempt is wrong, and not its job: it is bound by that job."""
    return pod.node is not None and (record.state in _NUMBERED or pod.job_id == record.job.id)


def renumbered(record: Placeholder, pod: Pod) -> Placeholder | None:
    """Returns the record of a workload without a job, all of whose Pods have that number; None: it has
    one, or they have not."""
    attempt = pod.attempt
    if record.state not in WITHOUT_JOB or any(each.attempt < attempt for each in record.pods):
        return None
    return asking_first(record.with_asked(attempt=attempt, attempt_try=0))


def overtaken(record: Placeholder, pod: Pod, at: Context) -> Placeholder:
    """Its job is ended if it still lives, and the later attempt is taken up where it stands, under the
    same ids."""
    if any(each.pod.node is not None for each in record.members if each.pod.uid != pod.uid):
        return record if record.state in _NUMBERED else _in_part(record, at)
    return numbering(record, pod.attempt, at)


def numbering(record: Placeholder, attempt: int, at: Context) -> Placeholder:
    """Returns the record with the number of an attempt to be written onto those of its Pods that do not
    have it yet: no job is asked for before."""
    without_job = record.state in WITHOUT_JOB
    before = record.with_asked(attempt=attempt - 1)
    if record.state is State.REPLACING:  # our own number, or that of another replica
        return numbered(before, attempt).with_retry(not_before=0.0)
    over = record.job.over or without_job
    moved = before.move(State.REPLACING, at.now, cause=record.cause if without_job else None)
    moved = moved.with_phase(Phase.ENDED, at.now) if over else moved
    return asking_first(numbered(moved, attempt))


def numbered(record: Placeholder, attempt: int) -> Placeholder:
    """Returns the record whose Pods have the next attempt's number where they name it, or get it: those
    may be bound by the last one until then."""
    members = (
        each._replace(slot=None, write=each.write._replace(done=True))
        if each.pod.attempt >= attempt
        else each
        for each in record.members
    )
    return record._replace(members=tuple(members))


# A Pod of it is gone


def after_end(record: Placeholder, uid: str, now: float, words: str = "Pod deleted") -> Placeholder:
    """Returns the record after one of its Pods is gone, will never run again, or has no use for its job;
    `words` are for where the Pod does not say itself what became of it. The job is over with the last
    Pod; a group that has not begun to run does not begin without one."""
    member = record.member(uid)
    if record.state in OVER or member is None:
        return record
    if len(record.members) == 1:
        record = record.with_members(unlisted=False)
        to = State.DONE if record.state in WITHOUT_JOB else State.RELEASING
        return record.move(to, now, cause=ConditionReason(Reason.POD_ENDED, words))
    left = _without(record, member)
    return left.move(State.SEEN, now) if left.state is State.INVALID else not_whole(left, now)


def not_whole(record: Placeholder, now: float) -> Placeholder:
    """Returns the record of a group of which a Pod is gone: one that does not run yet begins anew with
    another Pod in its place."""
    if record.state not in UNBOUND or not record.lacking:
        return record
    words = "a Pod of its group is gone: the group waits for another"
    return record.replaced(now, ConditionReason(Reason.POD_OF_GROUP_GONE, words))


def after_deletion(record: Placeholder, uid: str, last: Pod | None, now: float) -> Placeholder:
    """Returns the record after a Pod's deletion was seen; `last` is the version that was deleted."""
    ended = after_end(record, uid, now)
    return lingering(ended, last, now) if ended is not record and last is not None else ended


def after_absence(record: Placeholder, uid: str, now: float) -> Placeholder:
    """Returns the record after a Pod was missing from a list of all Pods. kube-apiserver may have come
    up with older data, without many that run: what is made of it is for the limiter to say."""
    member = record.member(uid)
    if member is None or record.state in WITHOUT_JOB | OVER:
        return after_end(record, uid, now)
    return record.with_member(member.pod, unlisted=True)


def after_missed(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record after it was decided that those of its Pods are gone that were missing."""
    for member in record.members:
        if member.unlisted:
            record = after_end(record, member.pod.uid, at.now, MISSED)
    return record


def is_back(record: Placeholder, pod: Pod) -> bool:
    """Tells whether a Pod that was taken for gone, since a list of all Pods lacked it, is there: it
    begins anew, by what it carries and what Slurm says of its job."""
    back = record.cause is not None and record.cause.message == MISSED
    if pod.group is not None:  # the others may have gone otherwise
        back = record.is_by_its_job(pod)
    return back and record.state in OVER and not (pod.finished or pod.leaving)


def invalid(record: Placeholder, why: WhyInvalid, now: float) -> Placeholder:
    """Returns the record of a Pod that cannot run as it is."""
    return record.move(State.INVALID, now, cause=why.cause(why.reason))
