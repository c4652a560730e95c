"""Decides whether the effects (calls to Slurm or Kubernetes) of a placeholder's record are due or must
wait. Also decides which reports to users are new."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from extender.explain.cause import Cause, Kind
from extender.explain.message import text
from extender.jobs.overlap import Unit, units_on, without
from extender.node_view.view import ClusterView
from extender.placement.index import Records
from extender.placement.nodes.eligible_nodes import beside, has_no_node, no_node, why_rejected
from extender.placement.transitions.attempts import not_now
from extender.placement.transitions.table import next_effect, writes
from extender.pod_request.pod import Pod
from extender.record.config import Context
from extender.record.events import (
    CancelJob,
    Effect,
    EvictPod,
    OnPod,
    ReadJob,
    RecordJobId,
    ReportWaiting,
    WriteAllocation,
)
from extender.record.member import Member
from extender.record.placeholder import Placeholder
from extender.record.retry import Waits
from extender.record.states import IN_QUEUES, State
from extender.turns.equivalence import window_of
from extender.turns.eviction_limiter import EvictionLimiter
from extender.turns.window import Windows
from wellknown.names import Reason

_REPORTED = IN_QUEUES | {State.INVALID}
_LEAVES_SOON_S = 1.0
"""Interval at which the extender checks whether another Pod still uses a slot. If the other Pod ends,
the extender checks at once."""
_STAYS_S = 5.0
"""Time for which the extender waits for a Pod that still uses a waiting Pod's slot. After this time, the
extender assumes that the other Pod stays, and gives the waiting Pod's allocation back. The time counts
from the grant, if nothing makes such Pods leave (`Placeholder.stays`). Otherwise the time counts from
`leaves_within` after the grant."""
_MANY_AT_ONCE = Cause.of(Kind.MANY_EVICTIONS)
_ALWAYS_REPORTED = frozenset(
    {
        Reason.REJECTED_BY_SLURM,
        Reason.SLURM_JOB_CHANGED,
        Reason.CORES_IN_USE,
        Reason.NOT_IN_GANG,
    }
)
_WAITS = frozenset({Reason.CORES_IN_USE, Reason.NOT_IN_GANG})


class Emitter:
    """Emits the effects of a record, unless another record requires a delay."""

    def __init__(self, records: Records, windows: Windows, limiter: EvictionLimiter) -> None:
        self._records = records
        self._windows = windows
        self._limiter = limiter

    def emit(self, record: Placeholder, at: Context, effects: list[Effect]) -> Placeholder:
        """Adds the due effects to `effects`. Returns the record, with these effects noted as under
        way."""
        if record.retry.due <= at.now:
            record = self._emit_next(record, at, effects)
        if not record.throttled:
            record = self._emit_writes(record, at, effects)
        for member in record.members if _may_report(record) else ():
            quiet = member.reporting or at.now < member.quiet_until
            if not quiet and (report := _next_report(record, member)) is not None:
                effects.append(report)
                record = record.with_member(member.pod, reporting=True)
        return record

    def clear_at(self, nodes: Iterable[str]) -> float:
        """Returns the time at which the last lingering containers on these Nodes end. Lingering
        containers outlive their Pod, and count here only if the Pod's job has ended too. Returns 0.0 if
        the Nodes have no such containers."""
        if not self._records.anything_lingers:
            return 0.0
        lingering = (each for node in nodes for each in self._records.lingering(node))
        return max((each.lingers_until for each in lingering if each.job.over), default=0.0)

    def _emit_next(self, record: Placeholder, at: Context, effects: list[Effect]) -> Placeholder:
        if record.state is State.SUBMITTING and not record.job.unread:
            if has_no_node(record, at):
                return not_now(record, no_node(record, at))
            record = self._to_be_asked(record, at)
        effect = next_effect(record, at)
        if effect is None:
            return record
        waits = self._must_wait(record, effect, at)
        if waits is not None:
            return waits
        if isinstance(effect, ReadJob) and effect.for_words:
            # A read that only serves a report (`for_words`) may queue behind many other reads. The
            # record's other effects do not wait for this read.
            if record.retry.asked_why is None:
                effects.append(effect)
                record = record.with_retry(asked_why=at.now)
            return record
        effects.append(effect)
        return record.with_retry(in_flight=True)

    def _emit_writes(self, record: Placeholder, at: Context, effects: list[Effect]) -> Placeholder:
        sent, partition = list[Pod](), record.request.job.partition
        for wanted in writes(record, at):
            effect = self._without_taken(wanted, partition, at.view)
            waits = self._must_wait(record, effect, at)
            if waits is None:
                effects.append(effect)
                sent.append(effect.pod)
                continue
            record = waits
            if record.throttled:
                break
        return record.with_writes(sent, in_flight=True) if sent else record

    def _to_be_asked(self, record: Placeholder, at: Context) -> Placeholder:
        """Sets `immediate` to False if an immediate job would overtake another job, or would probably
        find no room (`Windows.fast`)."""
        if not record.job.asked.immediate or self._windows.fast(window_of(record, at.view), at.now):
            return record
        return record.with_asked(immediate=False)

    def _must_wait(self, record: Placeholder, effect: Effect, at: Context) -> Placeholder | None:
        """Returns None if an effect may be carried out now. Otherwise returns the record with the delay.
        Four things delay an effect:

        * The job id and the attempt of a RecordJobId are already on the Pod, and no slot is left to
          write (`_without_taken`). The effect waits for `report_after`.
        * Containers on the Node of a WriteAllocation outlive their Pod and the Pod's job. The effect
          waits for the end of the containers.
        * Pods of other records use cores or devices of a WriteAllocation. The effect waits until these
          Pods have left, because any replica binds a Pod with an allocation.
        * The eviction limiter delays the deletion of a Pod. The limiter also delays the cancellation of
          a job whose Pods the extender has never seen.
        """
        if isinstance(effect, RecordJobId) and not effect.granted and _has_numbers(effect.pod, effect):
            return record.with_writes([effect.pod], not_before=at.now + at.rules.report_after)
        if isinstance(effect, WriteAllocation):
            clear = self.clear_at([effect.allocation.node])  # the end of containers without a Pod
            shared = at.view.shares_cores(record.request.job.partition)
            users = [] if shared else [*self._records.others_on(effect.allocation, effect.uid)]
            if clear <= at.now and users:
                clear = at.now + _LEAVES_SOON_S
                if record.state is State.BOUND:  # the gang keeps the job also without this Pod
                    return record.with_writes([effect.pod], not_before=clear)
                left_by = record.since
                if not all(each.stays for each in users):
                    left_by += at.rules.leaves_within
                by = at.now if at.now >= left_by + _STAYS_S else left_by + at.rules.unbound_deadline
                record = record.with_retry(unbound_by=by)
                if at.now >= record.since + at.rules.report_after:
                    where, job_id = effect.allocation.node, effect.allocation.job_id
                    record = record._replace(cause=Cause.of(Kind.CORES_IN_USE, job=job_id, node=where))
            return record.with_writes([effect.pod], not_before=clear) if clear > at.now else None
        deletes = isinstance(effect, EvictPod) or (isinstance(effect, CancelJob) and record.unseen)
        pod = effect.pod.uid if isinstance(effect, EvictPod) else None
        if deletes and not self._limiter.passes(record, at.now, pod):
            # Throttled records report one after the other, to limit the number of writes.
            report_at = at.now + self._limiter.held * at.rules.in_line_report_pause
            return record.with_members(quiet_until=report_at).with_retry(waits=Waits.FOR_LIMITER)
        return None

    def _without_taken(self, effect: OnPod, partition: str | None, view: ClusterView) -> OnPod:
        """Returns the effect without the cores that another Pod still uses. Slurm may have started the
        jobs of several Pods again, each job on the cores of another Pod. Such Pods would wait for each
        other. So a Pod first moves to the free cores of its new slot, and leaves its old cores to the
        other Pods."""
        if not isinstance(effect, RecordJobId) or effect.granted is None:
            return effect
        if view.shares_cores(partition):
            return effect
        slot, others = effect.granted, self._records.holding(effect.granted.node)
        there = (pod for each in others if each.uid != effect.uid for pod in each.pods)
        taken = frozenset[Unit]().union(*(units_on(pod, slot) for pod in there))
        return replace(effect, granted=without(slot, taken)) if taken else effect


def _has_numbers(pod: Pod, effect: RecordJobId) -> bool:
    """Returns True if the Pod already has the job id and the attempt of an effect."""
    return (pod.scheduling.job_id, pod.scheduling.attempt) == (effect.job_id, effect.attempt)


def _may_report(record: Placeholder) -> bool:
    cause = record.cause
    always = cause is not None and cause.reason in _ALWAYS_REPORTED
    replaces = record.state is State.BOUND and record.workload.size > 1 and record.unbound_members
    return record.state in _REPORTED or record.throttled or always or bool(replaces)


def _next_report(record: Placeholder, member: Member) -> ReportWaiting | None:
    cause = _what_holds_up(record, member)
    if cause is not None and record.throttled:
        cause = Cause(cause.kind, _MANY_AT_ONCE.reason, cause.facts, aside=_MANY_AT_ONCE)
    elif record.state not in _REPORTED and not (cause and cause.reason in _ALWAYS_REPORTED):
        return None
    if cause is None or not _is_news(cause, member.shown):
        return None
    waits = record.state in _REPORTED or record.throttled or cause.reason in _WAITS
    return _report(record, member, cause, event_alone=not waits)


def _report(record: Placeholder, member: Member, cause: Cause, *, event_alone: bool) -> ReportWaiting:
    job_id = record.job.id if record.state is State.QUEUED else None
    return ReportWaiting(record.uid, member.pod, cause, job_id, event_alone=event_alone)


def _what_holds_up(record: Placeholder, member: Member) -> Cause | None:
    """Returns the cause to report for a record. For a waiting Pod, the cause also names the Nodes that
    kube-scheduler rejected. kube-scheduler's message about a Node may come after the report of the
    rejection. Then the extender reports the rejection again, with this message."""
    cause, shown = record.cause, member.shown
    if record.state is State.BOUND and member.pod.life.node is None:
        return record.why_without_slot(member)
    if record.state not in IN_QUEUES:
        return cause
    if cause is None:
        outdated = shown is not None and shown.reason == Reason.NODE_REJECTED and record.rejections.nodes
        return why_rejected(record) if outdated else None
    return cause if cause.reason == Reason.NOT_BINDABLE else beside(record, cause)


def _is_news(cause: Cause, shown: Cause | None) -> bool:
    """Returns True if the cause is news for the user. Slurm's first plan for the job is news. A changed
    plan is not worth a write."""
    return shown is None or cause != shown or (cause.outlook is not None and shown.outlook is None)


def reports_again(record: Placeholder) -> Iterator[ReportWaiting]:
    """Yields the reports that the extender repeats after `report_interval`. The extender repeats no
    report if the Pod no longer waits, or if the cause has changed. The condition is written again only
    if its message has changed."""
    if record.state not in _REPORTED:
        return
    for member in record.members:
        cause, shown = _what_holds_up(record, member), member.shown
        again = cause is not None and cause == shown and not member.reporting and not member.unlisted
        if again and cause is not None and shown is not None:
            yield _report(record, member, cause, event_alone=text(cause) == text(shown))
