"""What a job that was read means for its placeholder: each function returns the next record."""

from collections.abc import Sequence
from typing import Final

from extender.cluster.view import ClusterView, excluding
from extender.jobs.claim import JobClaim, Keys, identity_of
from extender.jobs.grants import slot_of, slot_on
from extender.jobs.verdict import Part, Verdict, judge
from extender.placement.lingering import still_held
from extender.placement.on_job import (
    LOST,
    allocated_lost,
    ended,
    failed_before_start,
    to_ask_again,
    waiting_polled,
)
from extender.placement.rights import unknown_user
from extender.placement.waiting import why_it_waits
from extender.record.condition_reason import ConditionReason, WhyInvalid
from extender.record.config import Context
from extender.record.job_tracking import Doubt
from extender.record.member import with_slots
from extender.record.placeholder import Placeholder
from extender.record.states import UNBOUND, State
from extender.request.pod import Pod
from extender.request.pod_end import is_replaced
from slurm_client.model import Grant, Job
from slurm_client.ownership import NOBODY
from wellknown.names import Reason

_BEGINS_S: Final = 10
"""A job that is cancelled when it has had its nodes for longer is cancelled by a person."""
_NOT_STARTED: Final = 3
"""After so many jobs that did not start the next one is asked for much later."""
_NOT_POSSIBLE: Final = "BadConstraints"
"""slurmctld holds a job that no node of its partition can run at the moment (a feature is missing, a
node has left the partition), and does not release the job when that has passed (24.11, 26.05)."""
_NO_CREDENTIAL: Final = "slurm_cred_create failure"
"""Part of the SystemComment of a batch job that slurmctld (24.11) holds because slurmctld cannot resolve
the job's user. slurmctld does not release the job when the cause has passed."""

# It was read; None: Slurm does not know that id


def unasked_read(record: Placeholder, job: Job | None, at: Context) -> Placeholder:
    """SUBMITTING: Slurm said that the id exists: is the job ours, and what became of it?"""
    if job is None:
        return _look_again(record, at).with_job(doubt=Doubt.NONE)
    ours = record.job.is_ours
    if ours and _did_not_start(job):
        return _not_started(record, job, at)
    if ours and not failed_before_start(job):
        return adopt(record, job, at)
    # Ours was refused. Another's says nothing about room, and a Pod that queues closes the fast path.
    return record.next_try(at.rules).with_asked(immediate=record.job.asked.immediate and not ours)


def waiting_read(record: Placeholder, job: Job | None, at: Context) -> Placeholder:
    """QUEUED: a job that waits is asked for its reason; it may have started or ended meanwhile."""
    if job is None:
        return _look_again(record, at)
    if not job.state.pending:
        moved = waiting_polled(record, job.state, at)
        return _look_again(record, at) if moved is record else moved
    if job.held and _NO_CREDENTIAL in job.system_comment:
        return _refused(record, job, WhyInvalid(unknown_user(job.user_id)), Reason.WRONG_OWNER, at)
    if job.held and job.reason == _NOT_POSSIBLE and record.request.job.priority != 0:
        cause = why_it_waits(job, record.request, at)
        reason = Reason.TOO_LARGE if cause.reason == Reason.TOO_LARGE else Reason.INVALID
        why = WhyInvalid(cause.message.removesuffix("."), reason=reason)
        return _refused(record, job, why, reason, at)
    if job.reason in ("", "None"):  # the scheduler has not looked at it (again) yet
        return record.with_retry(not_before=at.now + at.rules.settle)
    return _held_up(record, why_it_waits(job, record.request, at), at)


def allocated_read(record: Placeholder, job: Job | None, at: Context) -> Placeholder:
    """ALLOCATED: it runs, and so it is known where."""
    if job is not None and job.state.running:
        return granted(record, job.id, job.grant, at)
    if job is not None and record.job.is_ours and _did_not_start(job):
        return _not_started(record, job, at)
    return bound_read(record, job, at)


def bound_read(record: Placeholder, job: Job | None, at: Context) -> Placeholder:
    """BOUND: does it run where its Pods are?"""
    if job is not None and record.job.unverified:
        return _unverified(record, job, at)
    return _look_again(record, at)


def released_read(record: Placeholder, job: Job | None, at: Context) -> Placeholder:
    """REPLACING, RELEASING: only a job that says itself that it is this workload's is ended. One that
    Slurm does not know may be on its way; one that was there a moment ago, under another name, is read
    again later."""
    if job is None and record.job.mistrust.renamed:
        return record.with_retry(not_before=at.now + at.rules.recancel)
    if job is None:
        return record if record.job.is_ours else _look_again(record, at)
    if not record.job.is_ours:
        return record.with_job(id=None, over_since=0.0)
    if record.unseen:  # what its author wrote is on the job alone
        record = still_held(record.with_comment(job.comment), job, at)
    if job.state.ended and not record.job.over:
        record = record.with_job(over_since=0.0)
    return record.with_job(doubt=Doubt.NONE).with_retry(not_before=0.0)


# What it says before that


def claim_of_record(record: Placeholder, keys: Keys, view: ClusterView) -> JobClaim:
    """Returns the claim of a workload, or of a job without Pods, to the job of its record."""
    return JobClaim(
        cluster=keys.cluster,
        workload=record.workload,
        ids=() if record.job.id is None else (record.job.id,),
        pods=tuple(record.pods),
        view=view,
        taken=record.job.is_ours,
        known=record.job.identity,
    )


def recognised(record: Placeholder, job: Job, verdict: Verdict) -> Placeholder:
    """Returns the record after it was found out whose its job is."""
    if not verdict.is_ours:
        return record.unclaimed()
    known = record.with_job(verdict=verdict)
    return known if known.job.has_lost_key else known.with_job(identity=identity_of(job))


def unusable(
    record: Placeholder, job: Job, verdict: Verdict, at: Context, *, made_so: bool
) -> Placeholder | None:
    """Returns the record of a job that the Pod must not be bound by; None where it may. `made_so`: Slurm
    took it from us, and it is read for the first time."""
    if record.state not in UNBOUND or job.state.ended:
        return None
    if not record.job.is_ours:
        return None if record.state is State.SUBMITTING else _under_another_id(record, at)
    if record.job.has_lost_key and record.job.identity is None:
        return _without_key(record, job, at)
    if not _is_of(job, record.job.asked.owner):
        return _disowned(record, job, at)
    lacks = verdict.words()
    if lacks is None:
        return None
    if made_so:
        return _made_otherwise(record, job, lacks, at)
    if record.state is State.SUBMITTING:  # what it was made for is looked at first
        return None
    return _given_back(record, job, _changed(job, lacks), at)


def _changed(job: Job, lacks: str) -> ConditionReason:
    told = f"Slurm job {job.id} is not what the Pod asks for: {lacks}; it is replaced"
    return ConditionReason(Reason.SLURM_JOB_CHANGED, told)


def _made_otherwise(record: Placeholder, job: Job, lacks: str, at: Context) -> Placeholder:
    """One may be its owner's doing. Two in a row are a plugin's: asking again would only make another
    such job, which may preempt somebody each time."""
    record = record.with_mistrust(altered=record.job.mistrust.altered + 1)
    if record.job.mistrust.altered < 2:
        return _given_back(record, job, _changed(job, lacks), at)
    what = f"is not what it was asked to be: {lacks}. A job_submit plugin, or its owner, has changed it"
    return _forbidden(record, job, Reason.SLURM_JOB_CHANGED, what, at)


def _without_key(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """Later nobody could tell whose such a job is: no Pod is bound by one."""
    what = (
        "does not have the AdminComment that it was asked for with: a job_submit plugin, or an"
        " administrator, overwrites it"
    )
    return _forbidden(record, job, Reason.SLURM_JOB_UNSIGNED, what, at)


def _forbidden(record: Placeholder, job: Job, reason: str, what: str, at: Context) -> Placeholder:
    """The job is ended, and its Pod refused for a while: somebody must mend Slurm's configuration."""
    why = WhyInvalid(f"Slurm job {job.id} {what}. It is cancelled", at.now + at.rules.mend)
    return _given_back(record._replace(forbidden_because=why), job, why.cause(reason), at)


def _is_of(job: Job, owner: tuple[int | None, int | None]) -> bool:
    """Tells whether an owner was heeded. slurmctld takes some requests and ignores whose they are, and
    one that it cannot resolve may run as nobody: neither says a word (24.11, 26.05)."""
    user, group = owner
    return user in (None, job.user_id) and group in (None, job.group_id)


def _disowned(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """Has a job of another user ended. Each further request may make another such job."""
    user, group = record.job.asked.owner
    if job.user_id == NOBODY and user is not None:
        return _refused(record, job, WhyInvalid(unknown_user(user)), Reason.WRONG_OWNER, at)
    asked = _owner_in_words(user, group)
    words = f"Slurm gave job {job.id} to {_owner_in_words(job.user_id, job.group_id)} instead of {asked}"
    why = WhyInvalid(f"{words}: the job is cancelled")
    return _refused(record, job, why, Reason.WRONG_OWNER, at)


def _owner_in_words(user: int | None, group: int | None) -> str:
    named = (("user", user), ("group", group))
    return " and ".join(f"{what} {number}" for what, number in named if number is not None)


def _refused(record: Placeholder, job: Job, why: WhyInvalid, reason: str, at: Context) -> Placeholder:
    """Gives a job back, and has Slurm asked again later: the cause may pass. `reason` is the one until
    the job has ended."""
    record = record._replace(forbidden_because=why._replace(asks_again=True))
    return _given_back(record, job, why.cause(reason), at)


def _given_back(record: Placeholder, job: Job, cause: ConditionReason, at: Context) -> Placeholder:
    """A job that runs may be bound before it is ended: then it must be known where."""
    if job.state.running:
        held = record if record.state is State.ALLOCATED else record.move(State.ALLOCATED, at.now)
        record = granted(held, job.id, job.grant, at)
    if record.state is State.REPLACING:  # no Node stands for its node
        return record
    return record.replaced(at.now, cause)


def _unverified(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """A slurmctld that was killed may have forgotten that it started a job: it starts it again. Only a
    job that was requeued on purpose, or that got another node, has left its Pod. One that can start
    where the Pod is and nowhere else is waited for, however long: nobody ended it (invariant I5)."""
    if failed_before_start(job) or not record.job.is_ours:
        return _under_another_id(record, at)
    suspect = record.job.doubt is Doubt.SUSPECT
    since = record.job.suspect_since if suspect else at.now
    forgotten = job.state.pending and job.restart_count == 0
    if waits_for_its_pods_nodes(job, record.pods, at.view):
        told = f"Slurm job {job.id} waits for the Node where its Pod runs"
        return _held_up(record, ConditionReason(LOST.reason, told), at)
    if forgotten and at.now - since < at.rules.doubt:
        return _look_again(record, at)
    nodes = job.nodes if job.state.running else ()
    unnamed = next((name for name in nodes if not at.view.naming(name)), None)
    if unnamed is not None:
        # A Node has lost its label, or is not there: nobody has ended the job.
        told = f"Slurm job {job.id} runs on {unnamed}, which no Node names"
        return _held_up(record, ConditionReason(Reason.SLURM_NODE_UNNAMED, told), at)
    if all(any(at.view.names_it(pod.node, name) for name in nodes) for pod in record.pods):
        return runs_where_its_pods_are(record, job, at)
    if job.state.running:
        told = f"Slurm job {job.id} was started again on {', '.join(job.nodes)}"
        cause = ConditionReason(Reason.SLURM_NODE_CHANGED, told)
        return record.move(State.EVICTING, at.now, cause=cause)
    unsure = not job.state.ended and not job.state.pending and not job.state.suspended
    return _look_again(record, at) if unsure else ended(record, job.state, at)


def runs_where_its_pods_are(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """Returns a record in BOUND whose job runs on its Pods' Nodes. A slurmctld that started it again may
    have given it other cores and devices there, and these to others. Cores and memory of a Pod that runs
    can be changed: they are written onto it (`next_effect.keep`). Its containers' devices cannot."""
    taken = judge(job, claim_of_record(record, at.rules, at.view)).words(Part.DEVICES)
    if taken is not None:
        cause = ConditionReason(Reason.SLURM_DEVICES_CHANGED, taken)
        return record.move(State.EVICTING, at.now, cause=cause)
    slots = [slot_of(pod, job, at.view) for pod in record.pods]
    members = zip(record.members, slots, strict=True)
    known = tuple([each._replace(slot=slot or each.slot) for each, slot in members])
    return record._replace(members=known, cause=None).with_job(doubt=Doubt.NONE)


def waits_for_its_pods_nodes(job: Job, pods: Sequence[Pod], view: ClusterView) -> bool:
    """Tells whether the job of bound Pods waits, and was not requeued, and can start where they are and
    nowhere else: it was asked for again, or its start was forgotten."""
    where = [view.nodes.get(pod.node or "") for pod in pods]
    names = {node.slurm_name for node in where if node is not None}
    forgotten = job.state.pending and job.restart_count == 0
    return forgotten and len(names) == len(where) and names == set(job.required_nodes)


def _under_another_id(record: Placeholder, at: Context) -> Placeholder:
    """Slurm forgot the job, and its id is another's by now, or was used up by another replica that asked
    for it anew: nobody ended it."""
    if record.state is State.ALLOCATED:
        return allocated_lost(record, at)
    again = record.next_try(at.rules)
    if record.state is State.BOUND:
        return to_ask_again(again)
    return again.move(State.SUBMITTING, at.now).with_asked(immediate=False)


def _held_up(record: Placeholder, cause: ConditionReason, at: Context) -> Placeholder:
    return record._replace(cause=cause).with_retry(not_before=at.now + at.rules.reason_interval)


def _look_again(record: Placeholder, at: Context) -> Placeholder:
    """Soon at first (a job that is being configured runs in a moment), then every `settle` seconds."""
    pause = max(at.rules.glance, (at.now - record.since) / 2)
    return record.with_retry(not_before=at.now + min(pause, at.rules.settle))


def granted(record: Placeholder, job_id: int, grant: Grant, at: Context) -> Placeholder:
    """Returns a record in ALLOCATED with what its job was given."""
    slots = [slot_on(node, job_id, grant, at.view) for node in grant.nodes]
    unknown = [node for node, slot in zip(grant.nodes, slots, strict=True) if slot is None]
    known = {slot.node: slot for slot in slots if slot is not None}
    if unknown or len(known) < len(record.members):
        chosen = ", ".join(unknown or grant.nodes)
        cause = ConditionReason(Reason.NODE_UNKNOWN, f"Slurm chose {chosen}, for which no Node stands")
        return record.replaced(at.now, cause)
    members = with_slots(record.members, known.values())
    verified = record._replace(members=members).with_job(doubt=Doubt.NONE)
    return verified.with_retry(not_before=0.0, failures=0)


def adopt(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """Returns a record in SUBMITTING after its job turned out to exist."""
    if job.state.ended and is_replaced(job.comment):
        cause = ConditionReason(Reason.CHANGED, f"Slurm job {job.id} was cancelled to be replaced")
        return record.replaced(at.now, cause).with_job(over_since=0.0)
    if job.state.ended:
        return ended(record, job.state, at)
    lacks = _outdated(record, job, at)
    if lacks is not None:
        return _given_back(record, job, _changed(job, lacks), at)
    record = record.with_asked(owner=(None, None))
    if job.state.running or (record.job.asked.immediate and job.state.holds_nodes):  # its Prolog may run
        return granted(record.move(State.ALLOCATED, at.now), job.id, job.grant, at)
    excluded = excluding(job.excluded_nodes)
    queued = record.move(State.QUEUED, at.now).with_asked(excluded=excluded, immediate=False)
    if not job.state.pending:
        return _look_again(queued, at)
    return queued.with_retry(not_before=at.now + at.rules.settle)


def _did_not_start(job: Job) -> bool:
    """Tells whether a job that has just got nodes was cancelled by its slurmd, which could not start it
    and may not requeue it. Its Prolog failed, or a slurmctld that was killed has started it once more
    where slurmd has it yet. Slurm does not tell that from a person's scancel. Of an EXTERNAL_JOB slurmd
    starts nothing."""
    began, ended = job.start_time or 0, job.end_time or 0
    # While it completes Slurm names only the nodes that it is not gone from. One that waited never does.
    had_nodes = bool(job.nodes) or job.state.completing
    cancelled = job.state.base == "CANCELLED" and had_nodes
    return cancelled and not job.external and ended - began < _BEGINS_S


def _not_started(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """It is asked for again: its node is drained by now. A few of them may be the Pod's own doing (a
    Prolog that does not know its user), and each would drain another node."""
    nodes = job.nodes or [each.slot.node for each in record.members if each.slot]
    told = f"Slurm job {job.id} was cancelled on {', '.join(nodes) or 'its nodes'} before it began"
    why, number = WhyInvalid(told), record.job.mistrust.not_started + 1
    if number >= _NOT_STARTED:
        why = WhyInvalid(told, at.now + at.rules.mend)
        record = record._replace(forbidden_because=why)
    moved = record.replaced(at.now, why.cause(Reason.SLURM_JOB_NOT_STARTED))
    return moved.with_job(over_since=0.0).with_mistrust(not_started=number)


def _outdated(record: Placeholder, job: Job, at: Context) -> str | None:
    """Returns what is wrong with a job from before the Pod, the policy or the job itself was changed;
    None where nothing is, or a Binding by it may be under way."""
    pods, request = record.pods, record.request
    carried = {pod.allocation.job_id for pod in pods if pod.allocation is not None}
    if job.state.running and job.id in carried:
        return None
    obstacle = next((pod.obstacle for pod in pods if pod.obstacle), None)
    if job.state.pending and (request.problems or obstacle):
        return "; ".join(request.problems) or obstacle
    verdict = judge(job, claim_of_record(record, at.rules, at.view), request.job)
    return verdict.words() or (verdict.words(Part.TIME_LIMIT) if job.state.pending else None)
