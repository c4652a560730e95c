"""Reactions of a placeholder to the start, the wait, the end and the loss of the job. The functions are
the cells of `table.TABLE`.

Each function returns the next version of the record. A poll reports only the job's state, so a function
gets no Job after a poll. If Slurm does not know a job, the extender does not evict running Pods
(invariant I5).
"""

from collections.abc import Sequence
from typing import Final

from extender.explain.cause import Cause, Kind
from extender.jobs.claim import JobClaim, Keys
from extender.jobs.phase import Phase
from extender.jobs.poll import FAILED_BEFORE_START
from extender.jobs.tracked_job import NOBODY_ASKED
from extender.jobs.verdict import NOT_READ, Part, judge
from extender.node_view.view import ClusterView, excluding
from extender.placement.transitions.lingering import still_held
from extender.placement.transitions.moves import (
    ask_again,
    ended,
    granted,
    held_up,
    in_doubt,
    look_again,
    over,
    slots_of,
)
from extender.placement.transitions.on_altered import outdated, refused, replaced_job
from extender.placement.transitions.waiting import why_held, why_it_waits
from extender.pod_request.pod import Pod
from extender.pod_request.pod_end import is_replaced
from extender.record.config import Context
from extender.record.ends import NODE_FAILED, end_of
from extender.record.members import with_slots
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.record.why_invalid import WhyInvalid
from slurm_client.job_state import JobState
from slurm_client.model import Job
from wellknown.names import Reason

_BEGINS_S: Final = 10
"""Seconds after the start of a job in which slurmd may cancel the job. If a job is cancelled later, a
user cancelled the job."""
_NOT_STARTED: Final = 3
"""Number of jobs that did not start, after which the extender waits longer before the next request."""
_NOT_POSSIBLE: Final = "BadConstraints"
"""Slurm's reason for a job that no node of the partition can run at the moment. For example, a feature
is missing, or a node has left the partition. slurmctld holds such a job, and does not release the job
when the cause has passed (24.11, 26.05)."""
_NO_CREDENTIAL: Final = "slurm_cred_create failure"
"""Part of the SystemComment of a batch job that slurmctld (24.11) holds because slurmctld cannot resolve
the job's user. slurmctld does not release the job when the cause has passed."""


def failed_before_start(job: Job) -> bool:
    """Returns True for the job that a rejected immediate allocation leaves behind."""
    return job.state.base in FAILED_BEFORE_START and not job.nodes


# SUBMITTING and QUEUED


def asked_waits(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """SUBMITTING: the submitted job exists, and does not run yet. If an immediate job has its nodes, a
    Prolog still runs, and the job counts as running."""
    if record.job.asked.immediate and job.state.holds_nodes:
        return asked_runs(record, job, at)
    lacks = outdated(record, job)
    if lacks:
        return replaced_job(record, job, lacks, at)
    excluded = excluding(job.excluded_nodes)
    queued = record.move(State.QUEUED, at.now)
    queued = queued.with_asked(owner=NOBODY_ASKED, excluded=excluded, immediate=False)
    if not job.state.pending:
        return look_again(queued, at)
    return queued.with_retry(not_before=at.now + at.rules.report_after)


def asked_runs(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """SUBMITTING: the submitted job exists, and has its nodes."""
    lacks = outdated(record, job)
    if lacks:
        return replaced_job(record, job, lacks, at)
    known = record.with_asked(owner=NOBODY_ASKED)
    return granted(known.move(State.ALLOCATED, at.now), job.id, job.grant, at)


def asked_ended(record: Placeholder, state: JobState, job: Job | None, at: Context) -> Placeholder:
    """SUBMITTING, QUEUED: the job has ended before a Pod was bound by the job."""
    if job is not None and _did_not_start(job):
        return _not_started(record, job, at)
    if job is not None and failed_before_start(job):
        return another_id(record, at)
    if job is not None and is_replaced(job.comment):
        cause = Cause.of(Kind.JOB_REPLACED, job=job.id)
        return record.with_phase(Phase.ENDED, at.now).replaced(at.now, cause)
    return ended(record, state, at)


def asked_foreign(record: Placeholder, at: Context) -> Placeholder:
    """SUBMITTING: the id belongs to another job, and the extender takes the next id. The fast path stays
    open, because Slurm reported nothing about room."""
    return record.next_try(at.rules)


def asked_unknown(record: Placeholder, at: Context) -> Placeholder:
    """SUBMITTING: Slurm does not know the id, so the extender submits the job again."""
    return look_again(record, at).with_job(unread=False)


def queued_runs(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """QUEUED: Slurm has started the job."""
    return granted(record.move(State.ALLOCATED, at.now), job.id, job.grant, at)


def queued_waits(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """QUEUED: the job waits for the reason that Slurm reports. An administrator may have suspended the
    job between its start and the next poll: then the extender requests another job."""
    if job.state.suspended:
        return ended(record, job.state, at)
    if not job.state.pending:
        return look_again(record, at)
    if job.held and _NO_CREDENTIAL in job.system_comment:
        why = WhyInvalid(Cause.of(Kind.UNKNOWN_USER, user=job.user_id))
        return refused(record, job, why, Reason.WRONG_OWNER, at)
    if job.held and job.reason == _NOT_POSSIBLE and record.request.job.priority != 0:
        cause = why_held(job, record.request, at)
        return refused(record, job, WhyInvalid(cause), cause.reason, at)
    if job.reason in ("", "None"):  # Slurm's scheduler has not evaluated the job (again) yet
        return record.with_retry(not_before=at.now + at.rules.report_after)
    return held_up(record, why_it_waits(job, record.request, at), at)


def queued_lost(record: Placeholder, at: Context) -> Placeholder:
    """QUEUED: Slurm has lost the job, and the extender submits the job again."""
    return record.unclaimed().move(State.SUBMITTING, at.now).with_asked(immediate=False)


def another_id(record: Placeholder, at: Context) -> Placeholder:
    """SUBMITTING, QUEUED: another job or a rejected request has used up the id. The extender submits the
    job under the next id."""
    again = record.next_try(at.rules)
    moved = again if again.state is State.SUBMITTING else again.move(State.SUBMITTING, at.now)
    return moved.with_asked(immediate=False)


# ALLOCATED and BOUND


def allocated_runs(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """ALLOCATED: the job's grant is known."""
    return granted(record, job.id, job.grant, at)


def allocated_ended(record: Placeholder, state: JobState, job: Job | None, at: Context) -> Placeholder:
    """ALLOCATED: the job has ended before the Binding of the Pods."""
    if job is not None and _did_not_start(job):
        return _not_started(record, job, at)
    if job is not None and failed_before_start(job):
        return allocated_lost(record, at)
    return ended(record, state, at)


def allocated_lost(record: Placeholder, at: Context) -> Placeholder:
    """ALLOCATED: Slurm does not know the job, or the id belongs to another job. A Binding may be under
    way."""
    cause = Cause.of(Kind.JOB_LOST, job=record.job.id)
    return record.unclaimed().with_phase(Phase.LOST, at.now).replaced(at.now, cause)


def bound_runs(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """BOUND: the job runs, perhaps on other Nodes than its Pods, because slurmctld may have started the
    job once more. If the job runs elsewhere, the extender evicts the Pods."""
    unnamed = next((name for name in job.nodes if not at.view.naming(name)), None)
    if unnamed is not None:
        # A Node has lost its label, or does not exist any more. No user has ended the job, so the Pods
        # stay.
        return held_up(record, Cause.of(Kind.NODE_UNNAMED, job=job.id, node=unnamed), at)
    pods = record.bound_pods
    if all(any(at.view.names_it(pod.life.node, name) for name in job.nodes) for pod in pods):
        return runs_where_its_pods_are(record, job, at)
    cause = Cause.of(Kind.JOB_STARTED_ELSEWHERE, job=job.id, nodes=job.nodes)
    return record.move(State.EVICTING, at.now, cause=cause)


def granted_waits(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """ALLOCATED, BOUND: the job does not run. A killed slurmctld may have forgotten the start of the
    job, and then starts the job once more. The extender waits for this start for `restart_wait`, unless
    the job was requeued on purpose. A job may be able to start on the Pods' Nodes and nowhere else. The
    extender waits for such a job without a limit, because no user ended the job (invariant I5)."""
    since = record.job.since if record.job.phase is Phase.SUSPECT else at.now
    forgotten = job.state.pending and not record.job.verdict.has_altered(Part.RESTARTED)
    failed = _failed_node(record)
    if failed is not None and not _on_ready_nodes(record, at.view):  # the node failed in Slurm first
        cause = end_of(job.id, JobState("NODE_FAIL"))
        return record.move(State.EVICTING, at.now, cause=cause)
    if waits_for_its_pods_nodes(job, record.bound_pods, at.view):
        return held_up(record, failed or Cause.of(Kind.JOB_WAITS_FOR_POD, job=job.id), at)
    if forgotten and at.now - since < at.rules.restart_wait:
        return look_again(record, at)
    gone = job.state.pending or job.state.suspended
    return ended(record, job.state, at) if gone else look_again(record, at)


def _failed_node(record: Placeholder) -> Cause | None:
    """Returns the cause of a record whose Pods run on a node that failed in Slurm alone."""
    cause = record.cause
    return cause if cause is not None and cause.kind is Kind.NODE_FAILED_AND_REPEATED else None


def bound_ended(record: Placeholder, state: JobState, job: Job | None, at: Context) -> Placeholder:
    """BOUND: the job has ended, and the extender evicts the Pods, with two exceptions. If the job under
    the id comes from a rejected request, the job never ran, and the Pods' own job is lost. A node may
    fail in Slurm alone, for example while slurmd is replaced. Then the Pods continue to run, and the
    extender requests another job on the same Nodes."""
    if job is not None and failed_before_start(job):
        return bound_foreign(record, at)
    if state.base in NODE_FAILED and not record.leaving and _on_ready_nodes(record, at.view):
        cause = Cause.of(Kind.NODE_FAILED_AND_REPEATED, job=record.job.id)
        return ask_again(record.next_try(at.rules), at, cause)
    return ended(record, state, at)


def _on_ready_nodes(record: Placeholder, view: ClusterView) -> bool:
    """Returns True if Kubernetes has tainted no Node of the Pods as not ready."""
    nodes = [view.nodes.get(pod.life.node or "") for pod in record.bound_pods]
    return all(node is not None and not node.away for node in nodes)


def bound_foreign(record: Placeholder, at: Context) -> Placeholder:
    """BOUND: Slurm has lost the job, and the id is used up. The extender requests the job under the next
    id."""
    cause = Cause.of(Kind.JOB_LOST_AND_REPEATED, job=record.job.id)
    return ask_again(record.next_try(at.rules), at, cause)


def bound_lost(record: Placeholder, at: Context) -> Placeholder:
    """BOUND: Slurm has lost the job. The Pods continue to run, and the extender requests another job on
    the same Nodes."""
    unclaimed = record.unclaimed()
    if record.leaving or record.has_lost_job:
        return unclaimed
    return ask_again(unclaimed, at)


def doubted(record: Placeholder, at: Context) -> Placeholder:
    """ALLOCATED, BOUND: Slurm has given cores or devices of the Pods to another job, so the extender
    reads the Pods' job."""
    runs = record.state in (State.ALLOCATED, State.BOUND) and record.job.phase is Phase.RUNNING
    return in_doubt(record, at) if runs and not record.leaving else record


def allocated_read(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """ALLOCATED: the job was read between two polls, and may have been suspended, or started again on
    other cores. The reply may be older than the record, so a doubtful job is read again."""
    has = set(slots_of(record, job, at))
    moved = job.state.running and not {each.slot for each in record.members} <= has
    doubtful = (moved or job.was_suspended) and record.job.phase is Phase.RUNNING
    return in_doubt(record, at) if doubtful else record


def bound_read(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """BOUND: the job was read between two polls. The reply may be older than the record, so a job that
    differs from the record is read again.

    The extender evicts the Pod at the start of the job's GraceTime, because the Pod's own grace period
    may need all of this time. Slurm never revokes a preemption, and no user can postpone the end (24.11,
    26.05)."""
    if record.leaving or record.job.phase is not Phase.RUNNING or not job.state.running:
        return record
    if job.preempt_time is not None:
        return record.move(State.EVICTING, at.now, cause=Cause.of(Kind.JOB_IN_GRACE_TIME, job=job.id))
    return record if _runs_as_known(record, job, at) else in_doubt(record, at)


def _runs_as_known(record: Placeholder, job: Job, at: Context) -> bool:
    """Returns True if a job that was read agrees with the record."""
    if not judge(job, claim_of_record(record, at.rules, at.view)).is_ours:
        return False
    found = bound_runs(record, job, at)
    slots_before, slots_now = ([each.slot for each in one.members] for one in (record, found))
    return found.state is State.BOUND and slots_now == slots_before


# REPLACING, EVICTING, RELEASING, DONE


def released_read(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """REPLACING, RELEASING: the job is the workload's, and is cancelled next."""
    if record.unseen:  # only the job has the author's comment
        record = still_held(record.with_comment(job.comment), job, at)
    return record.with_job(unread=False).with_retry(not_before=0.0)


def released_ended(record: Placeholder, _: JobState, job: Job | None, at: Context) -> Placeholder:
    """REPLACING, RELEASING: the job has ended."""
    record = record if job is None else released_read(record, job, at)
    return over(record, at)


def released_foreign(record: Placeholder, at: Context) -> Placeholder:
    """REPLACING, RELEASING: the id belongs to another job. The workload's job does not exist."""
    return over(record.with_job(id=None), at)


def released_unknown(record: Placeholder, at: Context) -> Placeholder:
    """REPLACING, RELEASING: Slurm does not know the job yet. If the job recently had another name, the
    extender reads the job again later."""
    if record.job.mistrust.renamed:
        return record.with_retry(not_before=at.now + at.rules.recancel)
    return record if record.job.is_ours else look_again(record, at)


def evicting_ended(record: Placeholder, _: JobState, _job: Job | None, at: Context) -> Placeholder:
    """EVICTING: the job has ended."""
    return over(record, at)


def replacing_lost(record: Placeholder, at: Context) -> Placeholder:
    """REPLACING: Slurm has lost the job, but a Binding by the job may be under way."""
    return record.unclaimed().with_phase(Phase.LOST, at.now)


def released_lost(record: Placeholder, at: Context) -> Placeholder:
    """EVICTING, RELEASING: Slurm does not know the job, so the job counts as ended."""
    return over(record.unclaimed(), at)


def restored(record: Placeholder, at: Context) -> Placeholder:
    """DONE: a restarted slurmctld has restored the job. The extender cancels the job once more."""
    unread = record.with_phase(Phase.ENDING, at.now).with_job(verdict=NOT_READ)
    return unread.move(State.RELEASING, at.now)


def runs_where_its_pods_are(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """Returns a record in BOUND whose job runs on its Pods' Nodes. If slurmctld started the job once
    more, the job may have other cores and devices there, and other jobs may have the Pods' devices. The
    extender updates cores and memory on the Pods (`next_effect.record_job`). The extender cannot change
    the devices of a running container, so a Pod without its devices is evicted. While a job is
    suspended, Slurm may give the cores to another job, and lets the job resume all the same (24.11,
    26.05). Therefore the Pod of a resumed job is evicted."""
    verdict = judge(job, claim_of_record(record, at.rules, at.view))
    if verdict.has_altered(Part.SUSPENDED):
        return record.move(State.EVICTING, at.now, cause=Cause.of(Kind.JOB_RESUMED, job=job.id))
    taken = verdict.lacks(Part.DEVICES)
    if taken:
        return record.move(State.EVICTING, at.now, cause=Cause.of(Kind.DEVICES_TAKEN, taken=taken))
    has = slots_of(record, job, at, record.bound_pods)
    members = with_slots(record.members, has, bound=True)
    verified = record._replace(members=members, cause=None).with_phase(Phase.RUNNING, at.now)
    return verified.with_job(unread=False)


def waits_for_its_pods_nodes(job: Job, pods: Sequence[Pod], view: ClusterView) -> bool:
    """Returns True if the job of bound Pods waits, was not requeued, and can start on the Pods' Nodes
    and nowhere else. Such a job is a repeated request of the extender, or slurmctld has forgotten the
    start of the job."""
    where = [view.nodes.get(pod.life.node or "") for pod in pods]
    names = {None if node is None else node.slurm_name for node in where}
    forgotten = job.state.pending and job.restart_count == 0
    # The job of a gang also requires the Node of a Pod that replaces a member.
    return forgotten and bool(names) and names <= set(job.required_nodes)


def claim_of_record(record: Placeholder, keys: Keys, view: ClusterView) -> JobClaim:
    """Returns the claim of a record's workload to the record's job. The record may have no Pods."""
    return JobClaim(
        cluster=keys.cluster,
        workload=record.workload,
        ids=() if record.job.id is None else (record.job.id,),
        pods=tuple(record.pods),
        view=view,
        taken=record.job.is_ours,
        generation=record.job.asked.generation,
        known=record.job.identity,
    )


def _did_not_start(job: Job) -> bool:
    """Returns True if slurmd cancelled a job right after the job got its nodes. slurmd could not start
    the job, and may not requeue the job. The job's Prolog failed, or a killed slurmctld has started the
    job once more on a node whose slurmd has the job already. Slurm does not distinguish such a
    cancellation from a user's scancel, so only the time shows the difference. An EXTERNAL_JOB does not
    count, because slurmd starts nothing for such a job."""
    began, ended_at = job.start_time or 0, job.end_time or 0
    # While a job completes, Slurm names only the nodes where the job still has processes. A job
    # that waited never completes.
    had_nodes = bool(job.nodes) or job.state.completing
    cancelled = job.state.base == "CANCELLED" and had_nodes
    return cancelled and not job.external and ended_at - began < _BEGINS_S


def _not_started(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """Returns the record after its job did not start. The extender requests another job, because
    slurmd has drained the node. The Pod may be the cause, for example if the Prolog does not know the
    user. Then each further job would drain another node. Therefore the extender waits after several
    such jobs."""
    nodes = job.nodes or tuple([each.slot.node for each in record.members if each.slot])
    why = WhyInvalid(Cause.of(Kind.NOT_STARTED, job=job.id, nodes=nodes))
    number = record.job.mistrust.not_started + 1
    if number >= _NOT_STARTED:
        why = why._replace(until=at.now + at.rules.altered_job_pause)
        record = record.with_rejections(forbidden_because=why)
    moved = record.with_phase(Phase.ENDED, at.now).replaced(
        at.now, why.shown(Reason.SLURM_JOB_NOT_STARTED)
    )
    return moved.with_mistrust(not_started=number)
