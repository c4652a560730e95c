"""What Slurm's news of a job means for its placeholder: each function returns the next record.

Absence is not news (invariant I5): only several confirmations from a healthy Slurm count, and never
against a Pod that runs.
"""

from __future__ import annotations

from dataclasses import replace

from extender.cluster.view import ClusterView, excluding
from extender.placement.config import Context
from extender.placement.fit import ends_earlier, misfit
from extender.placement.lingering import still_held
from extender.placement.ownership import Claim, OwnedBy, claim_of, identity_of, owner_of
from extender.placement.placeholder import ConditionReason, Placeholder, Refusal, State
from extender.placement.waiting import why_it_waits
from extender.request.pod import Pod
from extender.request.pod_end import is_replaced
from slurm_client.model import UNKNOWN_STATE, Grant, Job, JobState
from wellknown.allocation import Allocation
from wellknown.names import Reason

_UNBOUND = frozenset({State.SUBMITTING, State.QUEUED, State.ALLOCATED})
_RELEASED = frozenset({State.RELEASING, State.REPLACING, State.EVICTING})
# Ends that are Slurm's doing and not a person's: a Pod that has not started is placed again. FAILED is a
# job that slurmctld has started and cannot answer for any more ("response msg send failure, killing").
_PLACE_AGAIN = frozenset({"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "FAILED"})
# Ends of a submission that never ran: its id is burnt, and means nothing else.
_BURNT = frozenset({"FAILED", "BOOT_FAIL"})

PREEMPTED, CANCELLED = Reason.SLURM_JOB_PREEMPTED, Reason.SLURM_JOB_CANCELLED
FORESEEN = frozenset({Reason.SLURM_JOB_TIMEOUT, Reason.SLURM_JOB_DEADLINE, Reason.SLURM_JOB_COMPLETED})
"""Reasons of ends that were to come from the start: by what was asked for with the job, or by itself."""
_ENDED = {
    "CANCELLED": ConditionReason(CANCELLED, "was cancelled in Slurm"),
    "PREEMPTED": ConditionReason(PREEMPTED, "was preempted by Slurm"),
    "TIMEOUT": ConditionReason(Reason.SLURM_JOB_TIMEOUT, "reached its time limit in Slurm"),
    "DEADLINE": ConditionReason(Reason.SLURM_JOB_DEADLINE, "reached its deadline in Slurm"),
    "NODE_FAIL": ConditionReason(Reason.SLURM_NODE_FAILED, "lost its node in Slurm"),
    "BOOT_FAIL": ConditionReason(Reason.SLURM_NODE_FAILED, "lost its node in Slurm while it booted"),
    "COMPLETED": ConditionReason(Reason.SLURM_JOB_COMPLETED, "was completed in Slurm"),
    "SUSPENDED": ConditionReason(Reason.SLURM_JOB_SUSPENDED, "was suspended in Slurm"),
    "PENDING": ConditionReason(Reason.SLURM_JOB_REQUEUED, "was requeued in Slurm"),
}
_OTHER_END = ConditionReason(Reason.SLURM_JOB_ENDED, "ended in Slurm")
_LOST = ConditionReason(Reason.SLURM_JOB_LOST, "is not known to Slurm any more")
MISFIT = Reason.SLURM_JOB_CHANGED
"""The reason where a job is not, or no longer, what its Pod asks for."""


def end_of(job_id: int | None, state: JobState) -> ConditionReason:
    """Returns why a job no longer holds its resources, in words for the Pod's author."""
    known = _ENDED.get("SUSPENDED" if state.suspended else state.base, _OTHER_END)
    told = JobState(state.base, state.flags - {"COMPLETING"})  # which it only is for a moment
    return ConditionReason(known.reason, f"Slurm job {job_id} {known.message} ({told.text})")


def after_poll(placeholder: Placeholder, state: JobState | None, at: Context) -> Placeholder:
    """Returns the record after a poll said this state, or (None) did not know the job."""
    if state is None:
        return _missed(placeholder, at)
    if state.base == UNKNOWN_STATE:  # it could not be read, or understood
        return placeholder
    back = placeholder.forgotten and placeholder.state is State.BOUND
    if placeholder.misses or placeholder.forgotten:
        placeholder = placeholder._replace(misses=0, forgotten=False)
    if back:  # or its id is another's by now
        return _in_doubt(placeholder, at)
    if placeholder.state in _RELEASED:
        return _over(placeholder, at) if state.ended else placeholder
    if placeholder.state is State.DONE:
        revived = not state.ended and (state.running or state.pending)
        if not revived:
            return placeholder
        return placeholder.move(State.RELEASING, at.now, job_over=False, ours=False)
    return _while_live(placeholder, state, at)


def _missed(placeholder: Placeholder, at: Context) -> Placeholder:
    if placeholder.in_flight:  # it may be a submission that Slurm has not seen yet
        return placeholder
    missed = placeholder._replace(misses=placeholder.misses + 1)
    return _lost(missed, at) if missed.misses >= at.rules.confirmations else missed


def _while_live(placeholder: Placeholder, state: JobState, at: Context) -> Placeholder:
    match placeholder.state:
        case State.QUEUED if state.running:
            return placeholder.move(State.ALLOCATED, at.now)
        case State.QUEUED if state.base in (*_BURNT, "CANCELLED"):  # what it says is read first
            return placeholder.move(State.SUBMITTING, at.now, exists=True)
        case State.ALLOCATED | State.BOUND if state.base in _BURNT:
            return _in_doubt(placeholder, at)
        case State.QUEUED if state.ended:
            return _ended(placeholder, state, at)
        case State.ALLOCATED | State.BOUND if not placeholder.ours and (state.ended or state.suspended):
            return _in_doubt(placeholder, at)  # the id may be another's by now
        case State.BOUND if state.pending:
            return _in_doubt(placeholder, at)
        case State.ALLOCATED | State.BOUND if state.ended or state.suspended or state.pending:
            return _ended(placeholder, state, at)
    return placeholder


def _in_doubt(placeholder: Placeholder, at: Context) -> Placeholder:
    """It may have been about to be read as a matter of routine."""
    if placeholder.unverified_since is not None and placeholder.unverified_since <= at.now:
        return placeholder
    return placeholder._replace(unverified_since=at.now, not_before=0.0)


def _ended(placeholder: Placeholder, state: JobState, at: Context) -> Placeholder:
    cause = end_of(placeholder.job_id, state)
    unbound = placeholder.state is not State.BOUND
    again = unbound and (state.base in _PLACE_AGAIN or not state.ended)
    to = State.REPLACING if again else State.EVICTING
    return placeholder.move(to, at.now, job_over=state.ended, cause=cause)


def after_grace(placeholder: Placeholder, job: Job, at: Context) -> Placeholder:
    """Returns the record after its job was read while Slurm preempts it. Its Pod is told to leave at the
    start of the job's GraceTime: it may need all of that for its own grace. Slurm never calls a
    preemption off, nor lets anybody put its end off (24.11, 26.05)."""
    bound = placeholder.state is State.BOUND and placeholder.job_id == job.id
    if not bound or placeholder.pod.leaving or job.preempt_time is None or not job.state.running:
        return placeholder
    told = f"Slurm job {job.id} is being preempted: its GraceTime to leave has begun"
    cause = ConditionReason(PREEMPTED, told)
    return placeholder.move(State.EVICTING, at.now, cause=cause)


def _lost(placeholder: Placeholder, at: Context) -> Placeholder:
    placeholder = placeholder.unclaimed()
    match placeholder.state:
        case State.QUEUED:
            return placeholder.move(State.SUBMITTING, at.now, immediate=False)
        case State.ALLOCATED:
            cause = ConditionReason(_LOST.reason, f"Slurm job {placeholder.job_id} {_LOST.message}")
            return placeholder.move(State.REPLACING, at.now, job_over=True, cause=cause, forgotten=True)
        case State.BOUND if not placeholder.pod.leaving:
            return placeholder if placeholder.forgotten else to_ask_again(placeholder)
        case State.REPLACING:  # its Binding may yet arrive
            return _over(placeholder, at)._replace(forgotten=True)
        case State.RELEASING | State.EVICTING:
            return _over(placeholder, at)
    return placeholder


def _over(placeholder: Placeholder, at: Context) -> Placeholder:
    return placeholder._replace(job_over=True, over_since=at.now)


def after_read(placeholder: Placeholder, job: Job | None, at: Context) -> Placeholder:
    """Returns the record after its job was read; None where Slurm does not know that id."""
    made_so = placeholder.ours and placeholder.known is None
    placeholder = _recognised(placeholder, job, at)
    if job is not None and (unusable := _unusable(placeholder, job, at, made_so=made_so)) is not None:
        return unusable
    placeholder = _after_first_look(placeholder, made_so=made_so)
    match placeholder.state:
        case State.RELEASING | State.REPLACING:
            return _before_its_end(placeholder, job, at)
        case State.SUBMITTING:
            return _identified(placeholder, job, at)
        case State.QUEUED if job is not None:
            return _looked_at(placeholder, job, at)
        case State.ALLOCATED if job is not None and job.state.running:
            return granted(placeholder, job.id, Grant(job.nodes, job.gres), at)
        case State.ALLOCATED | State.BOUND if (
            job is not None and placeholder.unverified_since is not None
        ):
            return _unverified(placeholder, placeholder.unverified_since, job, at)
        case State.QUEUED | State.ALLOCATED | State.BOUND:
            return _look_again(placeholder, at)
    return placeholder


def _after_first_look(placeholder: Placeholder, *, made_so: bool) -> Placeholder:
    """A job that is as it was asked for ends the row of those that were not."""
    as_asked = made_so and placeholder.ours and placeholder.made_otherwise
    return placeholder._replace(made_otherwise=0) if as_asked else placeholder


def _recognised(placeholder: Placeholder, job: Job | None, at: Context) -> Placeholder:
    if job is None:
        return placeholder
    match owner_of(job, _claim(placeholder, at)):
        case OwnedBy.OURS:
            known = placeholder._replace(known=identity_of(job), unsigned=False)
        case OwnedBy.UNSIGNED:
            known = placeholder._replace(unsigned=True)
        case OwnedBy.FOREIGN:
            return placeholder.unclaimed()
    return known._replace(ours=True, job_name=job.name)


def _claim(placeholder: Placeholder, at: Context) -> Claim:
    ids = () if placeholder.job_id is None else (placeholder.job_id,)
    claim = claim_of(placeholder.pod, at.rules.cluster, ids, at.view)
    return replace(claim, taken=placeholder.ours, known=placeholder.known)


def _unusable(placeholder: Placeholder, job: Job, at: Context, *, made_so: bool) -> Placeholder | None:
    """Returns the record of a job that the Pod must not be bound by; None where it may. `made_so`: Slurm
    took it from us, and it is read for the first time."""
    if placeholder.state not in _UNBOUND or job.state.ended:
        return None
    if not placeholder.ours:
        return _anothers(placeholder, at)
    if placeholder.unsigned and placeholder.known is None:
        return _without_key(placeholder, job, at)
    if not _is_of(job, placeholder.owner):
        return _disowned(placeholder, job, at)
    lacks = misfit(placeholder.pod.request.job, job)
    if lacks is None:
        return None
    if made_so:
        return _made_otherwise(placeholder, job, lacks, at)
    if placeholder.state is State.SUBMITTING:  # what it was made for is looked at first
        return None
    return _given_back(placeholder, job, _changed(job, lacks), at)


def _anothers(placeholder: Placeholder, at: Context) -> Placeholder | None:
    """Slurm forgot the job, and its id stands for somebody else's by now."""
    if placeholder.state is State.SUBMITTING:
        return None
    if placeholder.state is State.ALLOCATED:
        return _lost(placeholder, at)
    following = placeholder.attempt_try + 1
    numbered = placeholder.submitted_as(at.rules.cluster, at.rules.ids, following)
    return numbered.move(State.SUBMITTING, at.now, immediate=False)


def _changed(job: Job, lacks: str) -> ConditionReason:
    told = f"Slurm job {job.id} is not what the Pod asks for: {lacks}; it is replaced"
    return ConditionReason(MISFIT, told)


def _made_otherwise(placeholder: Placeholder, job: Job, lacks: str, at: Context) -> Placeholder:
    """One may be its owner's doing. Two in a row are a plugin's: asking again would only make another
    such job, which may preempt somebody each time."""
    placeholder = placeholder._replace(made_otherwise=placeholder.made_otherwise + 1)
    if placeholder.made_otherwise < 2:
        return _given_back(placeholder, job, _changed(job, lacks), at)
    what = f"is not what it was asked to be: {lacks}. A job_submit plugin, or its owner, has changed it"
    return _forbidden(placeholder, job, MISFIT, what, at)


def _without_key(placeholder: Placeholder, job: Job, at: Context) -> Placeholder:
    """Later nobody could tell whose such a job is: no Pod is bound by one."""
    what = (
        "does not have the AdminComment that it was asked for with: a job_submit plugin, or an"
        " administrator, overwrites it"
    )
    return _forbidden(placeholder, job, Reason.SLURM_JOB_UNSIGNED, what, at)


def _forbidden(placeholder: Placeholder, job: Job, reason: str, what: str, at: Context) -> Placeholder:
    """The job is ended, and its Pod refused for a while: somebody must mend Slurm's configuration."""
    refusal = Refusal(f"Slurm job {job.id} {what}. It is cancelled", at.now + at.rules.mend)
    return _given_back(placeholder._replace(forbidden_because=refusal), job, refusal.cause(reason), at)


def _before_its_end(placeholder: Placeholder, job: Job | None, at: Context) -> Placeholder:
    """Only a job that says itself that it is this workload's is ended. One that Slurm does not know may
    be on its way; one that was there a moment ago, under another name, is read again later."""
    if job is None and placeholder.misnamed:
        return placeholder._replace(not_before=at.now + at.rules.recancel)
    if job is None:
        return placeholder if placeholder.ours else _look_again(placeholder, at)
    if not placeholder.ours:
        return placeholder._replace(job_id=None, job_over=True)
    if placeholder.unseen:  # what its author wrote is on the job alone
        request = placeholder.pod.request
        asked = replace(request.job, comment=job.comment or None)
        pod = placeholder.pod._replace(request=replace(request, job=asked))
        placeholder = still_held(placeholder._replace(pod=pod), job, at)
    over = placeholder.job_over or job.state.ended
    return placeholder._replace(job_over=over, not_before=0.0)


def _is_of(job: Job, owner: tuple[int | None, int | None]) -> bool:
    """Tells whether an owner was heeded. slurmctld takes some requests and ignores whose they are, and
    one that it cannot resolve may run as nobody: neither says a word (24.11, 26.05)."""
    user, group = owner
    return user in (None, job.user_id) and group in (None, job.group_id)


def _disowned(placeholder: Placeholder, job: Job, at: Context) -> Placeholder:
    """A job that nobody asked for is ended, and asking again would only make another."""
    if job.state.ended:
        return _ended(placeholder, job.state, at)
    user, group = placeholder.owner
    words = (
        f"Slurm gave job {job.id} to user {job.user_id} and group {job.group_id}, and not to user"
        f" {user} and group {group} as it was asked to: it is cancelled"
    )
    refusal = Refusal(words)
    return _given_back(
        placeholder._replace(forbidden_because=refusal), job, refusal.cause(Reason.WRONG_OWNER), at
    )


def _given_back(placeholder: Placeholder, job: Job, cause: ConditionReason, at: Context) -> Placeholder:
    """A job that runs may be bound before it is ended: then it must be known where."""
    if job.state.running:
        held = (
            placeholder
            if placeholder.state is State.ALLOCATED
            else placeholder.move(State.ALLOCATED, at.now)
        )
        placeholder = granted(held, job.id, Grant(job.nodes, job.gres), at)
    if placeholder.state is State.REPLACING:  # no Node stands for its node
        return placeholder
    return placeholder.move(State.REPLACING, at.now, cause=cause)


def _unverified(placeholder: Placeholder, since: float, job: Job, at: Context) -> Placeholder:
    """A slurmctld that was killed may have forgotten that it started a job: it starts it again. Only a
    job that was requeued on purpose, or that got another node, has left its Pod. One that can start
    where the Pod is and nowhere else is waited for, however long: nobody ended it (invariant I5)."""
    if failed_before_start(job) or not placeholder.ours:
        return _under_another_id(placeholder, at)
    forgotten = job.state.pending and job.restart_count == 0
    if waits_for_its_pods_node(job, placeholder.pod, at.view):
        told = f"Slurm job {job.id} waits for the Node where its Pod runs"
        waits = ConditionReason(_LOST.reason, told)
        return placeholder._replace(cause=waits, not_before=at.now + at.rules.reason_interval)
    if forgotten and at.now - since < at.rules.doubt:
        return _look_again(placeholder, at)
    where = job.nodes[0] if job.state.running and job.nodes else ""
    if where and not at.view.naming(where):
        # A Node has lost its label, or is not there: nobody has ended the job.
        told = f"Slurm job {job.id} runs on {where}, which no Node names"
        cause = ConditionReason(Reason.SLURM_NODE_UNNAMED, told)
        return placeholder._replace(cause=cause, not_before=at.now + at.rules.reason_interval)
    if at.view.names_it(placeholder.pod.node, where):
        return placeholder._replace(unverified_since=None, cause=None)
    if job.state.running:
        told = f"Slurm job {job.id} was started again on {job.nodes[0]}"
        cause = ConditionReason(Reason.SLURM_NODE_CHANGED, told)
        return placeholder.move(State.EVICTING, at.now, cause=cause)
    unsure = not job.state.ended and not job.state.pending and not job.state.suspended
    return _look_again(placeholder, at) if unsure else _ended(placeholder, job.state, at)


def waits_for_its_pods_node(job: Job, pod: Pod, view: ClusterView) -> bool:
    """Tells whether a bound Pod's job waits, and was not requeued, and can start where the Pod is and
    nowhere else: it was asked for again, or its start was forgotten."""
    where = view.nodes.get(pod.node or "")
    forgotten = job.state.pending and job.restart_count == 0
    return forgotten and where is not None and job.required_nodes == (where.slurm_name,)


def _under_another_id(placeholder: Placeholder, at: Context) -> Placeholder:
    """Slurm forgot the job, and its id is another's by now, or was burnt by another replica that asked
    for it anew: nobody ended it."""
    if placeholder.state is State.ALLOCATED:
        return _lost(placeholder, at)
    following = placeholder.attempt_try + 1
    return to_ask_again(placeholder.submitted_as(at.rules.cluster, at.rules.ids, following))


def to_ask_again(placeholder: Placeholder) -> Placeholder:
    """Returns the record of a Pod that runs (invariant I5) though Slurm does not know its job."""
    words = f"Slurm job {placeholder.job_id} {_LOST.message}: another is asked for where the Pod runs"
    lost = ConditionReason(_LOST.reason, words)
    return placeholder._replace(forgotten=True, unverified_since=None, cause=lost, not_before=0.0)


def _look_again(placeholder: Placeholder, at: Context) -> Placeholder:
    """Soon at first (a job that is being configured runs in a moment), then every `settle` seconds."""
    pause = max(at.rules.glance, (at.now - placeholder.since) / 2)
    return placeholder._replace(not_before=at.now + min(pause, at.rules.settle))


def _looked_at(placeholder: Placeholder, job: Job, at: Context) -> Placeholder:
    """A job that waits is asked for its reason; it may have started or ended meanwhile."""
    if not job.state.pending:
        moved = _while_live(placeholder, job.state, at)
        unmoved = moved is placeholder
        return _look_again(placeholder, at) if unmoved else after_read(moved, job, at)
    if job.reason in ("", "None"):  # the scheduler has not looked at it (again) yet
        return placeholder._replace(not_before=at.now + at.rules.settle)
    cause = why_it_waits(job, placeholder.pod, at)
    return placeholder._replace(cause=cause, not_before=at.now + at.rules.reason_interval)


def granted(placeholder: Placeholder, job_id: int, grant: Grant, at: Context) -> Placeholder:
    """Returns a record in ALLOCATED with what its job was given."""
    slurm_node = grant.nodes[0] if grant.nodes else ""
    node = at.view.node_of(slurm_node)
    if node is None:
        told = f"Slurm chose {slurm_node}, for which no Node stands"
        cause = ConditionReason(Reason.NODE_UNKNOWN, told)
        return placeholder.move(State.REPLACING, at.now, cause=cause)
    allocation = Allocation(job_id, node.name, ",".join(grant.gres))
    return placeholder._replace(allocation=allocation, unverified_since=None, not_before=0.0, failures=0)


def _identified(placeholder: Placeholder, job: Job | None, at: Context) -> Placeholder:
    """Slurm said that the id exists: is the job ours, and what became of it?"""
    if job is None:
        return _look_again(placeholder, at)._replace(exists=False)
    ours = placeholder.ours
    if ours and not failed_before_start(job):
        return adopt(placeholder, job, at)
    following = placeholder.attempt_try + 1
    numbered = placeholder.submitted_as(at.rules.cluster, at.rules.ids, following)
    # Ours was refused. Another's says nothing about room, and a Pod that queues closes the fast path.
    return numbered._replace(immediate=placeholder.immediate and not ours)


def failed_before_start(job: Job) -> bool:
    """Tells whether a job is what a refused immediate allocation leaves behind."""
    return job.state.base in _BURNT and not job.nodes


def adopt(placeholder: Placeholder, job: Job, at: Context) -> Placeholder:
    """Returns a record in SUBMITTING after its job, which has its key, turned out to exist."""
    placeholder = placeholder._replace(ours=True)
    if job.state.ended and is_replaced(job.comment):
        cause = ConditionReason(Reason.CHANGED, f"Slurm job {job.id} was cancelled to be replaced")
        return placeholder.move(State.REPLACING, at.now, job_over=True, cause=cause)
    if job.state.ended:
        return _ended(placeholder, job.state, at)
    lacks = _outdated(placeholder.pod, job)
    if lacks is not None:
        return _given_back(placeholder, job, _changed(job, lacks), at)
    placeholder = placeholder._replace(owner=(None, None))
    if job.state.running:
        return granted(placeholder.move(State.ALLOCATED, at.now), job.id, Grant(job.nodes, job.gres), at)
    excluded = excluding(job.excluded_nodes)
    queued = placeholder.move(State.QUEUED, at.now, excluded=excluded, immediate=False)
    if not job.state.pending:
        return _look_again(queued, at)
    return queued._replace(not_before=at.now + at.rules.settle)


def _outdated(pod: Pod, job: Job) -> str | None:
    """Returns what is wrong with a job from before the Pod, the policy or the job itself was changed;
    None where nothing is, or a Binding by it may be under way."""
    if job.state.running and pod.allocation is not None and pod.allocation.job_id == job.id:
        return None
    if job.state.pending and (pod.request.problems or pod.obstacle):
        return "; ".join(pod.request.problems) or pod.obstacle
    asked = pod.request.job
    return misfit(asked, job) or (ends_earlier(asked, job) if job.state.pending else None)
