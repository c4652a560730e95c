"""The ledger: the records of all placeholders, and the effects to carry out next.

`apply(event, now)` takes an event of Slurm or Kubernetes, and returns the effects that follow. The
ledger never waits, and never reads a clock. The rules are pure functions (`on_pod`, `on_job`,
`next_effect`, `recovery`). `settled` handles the consequences of each changed record.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from extender.jobs.claim import is_of_pods
from extender.node_view.view import ClusterView
from extender.placement.emit import reports_again
from extender.placement.nodes.eligible_nodes import is_outdated, regained
from extender.placement.recovery import orphan_of, recovered
from extender.placement.settled import Settled
from extender.placement.transitions import lingering, on_pod
from extender.placement.transitions.attempts import asked_all_the_same, begin
from extender.placement.transitions.kept_back import kept_back
from extender.placement.transitions.lingering import still_held
from extender.placement.transitions.on_job import doubted
from extender.placement.transitions.on_outcome import after_outcome
from extender.placement.transitions.table import TABLE, after_pod, after_pods, after_poll
from extender.placement.wakes import taken
from extender.pod_request.workload import Workload
from extender.record.events import (
    ClusterObserved,
    Effect,
    Event,
    Failure,
    JobRead,
    JobsPolled,
    OrphanFound,
    Outcome,
    PodObserved,
    PodVanished,
    Recovered,
    Remedy,
    ReportWaiting,
    Tick,
)
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.turns.equivalence import window_of
from extender.turns.window import InLine

_MAX_RECORDS_AT_ONCE = 50  # takes some milliseconds
_Item = TypeVar("_Item")


class Ledger(Settled):
    """Takes events, and returns effects."""

    # Queries

    def bound_jobs(self) -> dict[str, int]:
        """Returns the ids of the jobs of bound Pods, by the uid of the workload."""
        bound = (each for each in self._records.of(State.BOUND) if not each.leaving)
        return {each.uid: each.job.id for each in bound if each.job.id is not None}

    def jobs_with_grace(self) -> dict[str, int]:
        """Returns the ids of jobs of bound Pods, by the uid of the workload. Slurm gives each of these
        jobs a grace time before a preemption."""
        if not self._view.gives_grace:
            return {}
        has_grace = self._view.has_grace
        jobs = self.bound_jobs()
        return {uid: job for uid, job in jobs.items() if has_grace(self._records[uid].request.job)}

    def next_wake(self) -> float:
        """Returns the time of the next Tick, on the caller's clock; infinity if none is due."""
        if self._put_off:
            return self._at.now
        opens = min(self._windows.opens, self._retries.opens, self._eviction_limiter.opens)
        return min(self._wakes.next, self._to_tell.next, opens, self.rejecting_nodes.opens)

    def place_in_line(self, uid: str) -> InLine | None:
        """Returns the position of a workload in the line before Slurm's queue; None for a workload that
        does not wait for a turn."""
        return self._windows.place_in_line(uid)

    # The only entry

    def apply(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Takes an event and returns the effects to carry out. `now` never goes back."""
        self._at = replace(self._at, now=now, rules=self.rules)
        self._HANDLERS[type(event)](self, event)
        if not isinstance(event, Recovered):
            # A new leader feeds one Recovered event for each workload. If the ledger caught up after the
            # first of these events, the ledger would request jobs before all queued jobs are counted.
            self._catch_up()
        for uid in self._eviction_limiter.turns(now):
            self._settle(self._records[uid].with_retry(not_before=0.0))
        if self._to_tell.next <= now:
            self._tell()
        self._follow_up()
        effects, self._effects = tuple(self._effects), []
        return effects

    # Events

    def _outcome(self, event: Outcome) -> None:
        record, result = self._records.get(event.effect.uid), event.result
        if record is None:
            return
        partition = window_of(record, self._view)
        if isinstance(result, Failure) and result.remedy is Remedy.NO_ROOM:
            self._windows.had_no_room(partition, self._at.now)
        sifted = self._key_checks.sifted(partition, result)
        event = event if sifted is result else replace(event, result=sifted)
        after = after_outcome(record, event, self._at)
        if isinstance(event.effect, ReportWaiting):
            # If the Pod still waits after `report_interval`, the ledger repeats the report.
            self._to_tell.again.pop(record.uid, None)
            self._to_tell.again[record.uid] = self._at.now + self.rules.report_interval
        self._settle(after)

    def _recovered(self, event: Recovered) -> None:
        record, orphans = recovered(event.pods, event.jobs, self._at)
        if record is not None:
            self._settle(record)
        for pod in event.pods:
            late = pod.group is not None and pod.life.node is None
            if late and (record is None or record.member(pod.uid) is None):
                self._pod_observed(PodObserved(pod))
        for job, attempt in orphans:
            self._settle(orphan_of(event.pods, job, attempt, self._at))

    def _orphan(self, event: OrphanFound) -> None:
        key = event.key
        record = self._records.get(key.uid)
        if record is not None and not is_of_pods(key, event.job_id, record.pods):
            record = None  # the job of an earlier gang with this name
        if record is not None and record.attempt < key.attempt:
            return  # another replica has numbered this attempt: the Pod's new version is on its way
        if record is not None and record.attempt == key.attempt:
            is_kept_back = record.state is State.SEEN and kept_back(record, self._at.now) is not None
            if record.state is State.INVALID or is_kept_back:
                self._settle(asked_all_the_same(record, key, event.job_id, self._at.now))
                return
            if record.state is State.SEEN or record.job.id == event.job_id:
                return  # the record has the job, or will find the job under the next id
        workload = Workload(key.uid, key.namespace, key.name)
        orphan = Placeholder.of_orphan(workload, event.job_id, self._at.now)
        orphan = orphan.with_asked(attempt=key.attempt)
        # The record takes the Pod's containers from the comment of `event.job` now, because the job may
        # end before the next read of the job.
        self._settle(still_held(orphan, event.job, self._at) if event.job else orphan)

    def _pod_observed(self, event: PodObserved) -> None:
        pod, uid = event.pod, event.pod.workload.uid
        record = self._here_again(self._records.get(uid))
        if self.rejecting_nodes.pod_seen(record, pod, self._view, self._at.now):
            self._nodes_changed()
        if record is not None and on_pod.is_back(record, pod):
            self._forget(uid)
            record = Placeholder.of(pod, self._at.now)._replace(lingering=record.lingering)
        self._records.kept_out.pop(pod.uid, None)
        if record is not None or not pod.life.finished:
            before = record or Placeholder.of(pod, self._at.now)
            after = after_pod(before, pod, self._at)
            if on_pod.is_only_newer(before, after, pod.uid):
                self._records.put(after)
                return
            if pod.group is not None:
                self._records.kept_out |= on_pod.left_out(before, after, pod)
            self._settle(after)
            if pod.uid in self._records.kept_out and not pod.shows_wait:
                self._effects.append(ReportWaiting(uid, pod, on_pod.kept_out(self._records[uid]), None))
        member = None if record is None else record.member(pod.uid)
        if member is not None and member.pod.touch != pod.touch:
            self._hasten(uid, self.rules.retry_touched)

    def _here_again(self, record: Placeholder | None) -> Placeholder | None:
        if record is not None and record.uid in self._eviction_limiter and record.unlisted:
            self._eviction_limiter.forget(record.uid)
            if record.throttled:  # the Pod is still to be evicted: the record emits the effect again
                return record.with_retry(not_before=0.0)
        return record

    def _pod_vanished(self, event: PodVanished) -> None:
        self._records.kept_out.pop(event.uid, None)
        record = self._records.of_pod(event.uid)
        if record is None:
            return
        if event.seen:
            self._settle(on_pod.after_deletion(record, event.uid, event.last, self._at.now))
        else:
            self._settle(on_pod.after_absence(record, event.uid, self._at.now))

    def _jobs_polled(self, event: JobsPolled) -> None:
        known, states = self._records.with_jobs(event.asked), event.states
        polled = [each for each in known if each.watched and each.since <= event.asked_at]
        found = [(each, after_poll(each, states.get(each.job.known_id), self._at)) for each in polled]
        moved = [after for before, after in found if after is not before]
        for record in sorted(moved, key=lambda each: each.first_seen):
            self._settle(record)

    def _job_read(self, event: JobRead) -> None:
        record = self._records.get(event.uid)
        if record is None or record.job.id != event.job.id:
            return
        after = TABLE[record.state].read(record, event.job, self._at)
        if after is not record:
            self._settle(after)

    def _cluster_observed(self, event: ClusterObserved) -> None:
        mended = event.view.partitions != self._view.partitions
        before, self._view = self._view, event.view
        self._at = replace(self._at, view=event.view, closed_by_pods=self._apart.closed_in(event.view))
        self._are_back(before, event.view)
        for node in {name for uid in self._avoiding for name, _ in self._records[uid].rejections.nodes}:
            if regained(node, before, self._view):
                # The ledger only opens the Node again to the Pods for which kube-scheduler rejected the
                # Node. kube-scheduler retries these Pods by itself.
                self._reopen(node)
        for uid in self._retries.one_of_each() if mended else ():
            self._hasten(uid, self.rules.retry[0])
        self._nodes_changed()

    def _are_back(self, before: ClusterView, now: ClusterView) -> None:
        """Extends the time for which containers of deleted Pods may still run on some Nodes: the Nodes
        whose kubelets report to Kubernetes again."""
        if not self._records.anything_lingers:
            return
        away = [name for name, node in before.nodes.items() if node.away]
        nodes = {name for name in away if name in now.nodes and not now.nodes[name].away}
        for record in self._records.all_lingering if nodes else ():
            self._settle(lingering.prolonged(record, nodes, self._at))

    def _nodes_changed(self) -> None:
        self._windows.wake(self._view.max_job_count)
        queued = (each.uid for each in self._records.of(State.QUEUED))
        refused = self._retries.one_of_each()
        self._to_review |= dict.fromkeys((*refused, *queued, *self._apart.heeding))

    def _tick(self, _event: Tick) -> None:
        if self.rejecting_nodes.reopen(self._at.now):
            self._nodes_changed()
        for uid in self._some(self._wakes.due(self._at.now, self._records.get)):
            self._settle(self._records[uid])

    # Consequences for other records

    def _some(self, items: Iterator[_Item]) -> Iterator[_Item]:
        """Yields only as many items as one event may handle, but always the first item. Stops after an
        item for which the view had to evaluate all Nodes, because such an evaluation is costly. The next
        Tick is due at once, and handles the remaining items. The ledger can handle other events before
        this Tick."""
        evaluated = self._view.evaluated
        for number, item in enumerate(items, 1):
            yield item
            if number == _MAX_RECORDS_AT_ONCE or self._view.evaluated > evaluated:
                self._put_off = True
                return

    def _catch_up(self) -> None:
        self._put_off = False
        self._follow_up()
        for uid in self._some(taken(self._to_review)) if self._to_review else ():
            record = self._records.get(uid)
            if record is not None:
                self._review(record)
        tries = self._retries.turns(self._at.now) if self._retries.opens <= self._at.now else ()
        for uid in self._some(tries) if tries else ():
            self._tell_when(uid)
            self._settle(self._records[uid].move(State.SEEN, self._at.now))
        if self._windows.opens <= self._at.now:
            for partition, uid in self._some(self._windows.turns(self._at.now)):
                record, fast = self._records[uid], self._windows.fast(partition, self._at.now)
                self._settle(begin(record, self._at, partition, fast=fast))

    def _follow_up(self) -> None:
        """Makes the queued moves of records. The moves follow from earlier changes, mostly of other
        records."""
        rules = (
            (self._missed, on_pod.after_missed),
            (self._to_reread, after_pods),
            (self._doubted, doubted),
            (self._freed, on_pod.freed),
        )
        while self._missed or self._to_reread or self._doubted or self._freed or self._to_offer:
            for uids, rule in rules:
                for uid in taken(uids):
                    if (record := self._records.get(uid)) is not None:
                        self._settle(rule(record, self._at))
            for uid in taken(self._to_offer):
                self._offer(uid)

    def _review(self, record: Placeholder) -> None:
        match record.state:
            case State.INVALID if record.rejected_by_slurm and self._retries.due(record.uid) is None:
                self._settle(record.move(State.SEEN, self._at.now))
            case State.INVALID if record.rejected_by_slurm and is_outdated(record, self._at):
                self._hasten(record.uid, self.rules.retry[0])
            case State.QUEUED if is_outdated(record, self._at):
                self._settle(record.with_retry(not_before=0.0))
            case State.SEEN | State.SUBMITTING | State.ALLOCATED:
                self._settle(record)

    def _hasten(self, uid: str, pause: float) -> None:
        if self._retries.hasten(uid, self._at.now, pause):
            self._tell_when(uid)

    def _tell_when(self, uid: str) -> None:
        """Schedules a report for each Pod with the same request, because the next try now has another
        time."""
        for each in self._retries.alike(uid):
            self._to_tell.when.setdefault(each, self._at.now + self.rules.report_after)

    # Consequences of one record

    def _offer(self, uid: str) -> None:
        """Adds a waiting Pod to the group `uid`, if the group could not take the Pod before, and can
        take the Pod now."""
        record = self._records.get(uid)
        pod = None if record is None else self._records.next_for(record, self._at.now)
        if record is None or pod is None:
            return
        if record.state is State.DONE:
            self._bury(record)
            self._forget(uid)
            record = on_pod.begun_again(record, pod, self._at.now)
        del self._records.kept_out[pod.uid]
        self._settle(after_pod(record, pod, self._at))

    def _tell(self) -> None:
        """Makes the due reports on Pods: the reason for which a Pod waits, the time of the next try for
        a Pod that Slurm rejected, or an earlier report once more."""
        to_tell, now = self._to_tell, self._at.now
        for turns in (to_tell.in_line, to_tell.when):
            for uid in to_tell.due(turns, now):
                record = self._records.get(uid)
                if record is not None and record.state is State.SEEN and record.cause is None:
                    if record.retry.not_before > now:  # more Pods of the gang come (`on_pod.joined`)
                        to_tell.in_line[uid] = record.retry.not_before
                        continue
                    to_tell.reported_at = now
                    why = self._apart.why(record, self._at) or self._windows.why(uid)
                    self._settle(record._replace(cause=why))
                elif record is not None and record.rejected_by_slurm:
                    to_tell.reported_at = now
                    self._settle(record)
        for uid in to_tell.due(to_tell.again, now):
            record = self._records.get(uid)
            for report in () if record is None else reports_again(record):
                to_tell.reported_at = now
                self._effects.append(report)
                self._records.put(self._records[uid].with_member(report.pod, reporting=True))

    _HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        Outcome: _outcome,
        Recovered: _recovered,
        OrphanFound: _orphan,
        PodObserved: _pod_observed,
        PodVanished: _pod_vanished,
        JobsPolled: _jobs_polled,
        JobRead: _job_read,
        ClusterObserved: _cluster_observed,
        Tick: _tick,
    }
