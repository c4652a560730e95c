"""The ledger: what is true of every workload's placeholder, and what is to be done next.

`apply(event, now)` takes in what one of the two systems said and returns the effects that follow. It
never waits and never looks at a clock. The rules are pure functions beside it (`on_pod`, `on_job`,
`next_effect`, `recovery`); what is kept here is the records, the line of those that wait for a turn, and
when each is to be looked at again.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from typing import Any, TypeVar

from extender.cluster.view import ClusterView
from extender.placement import eviction_limiter, signatures
from extender.placement.config import Context, PlacementConfig
from extender.placement.events import (
    CancelJob,
    ClusterObserved,
    Effect,
    Event,
    EvictPod,
    Failure,
    GraceStarted,
    JobsPolled,
    OrphanFound,
    Outcome,
    PodObserved,
    PodVanished,
    ReadJob,
    Recovered,
    Remedy,
    ReportWaiting,
    Submit,
    Tick,
    WriteAllocation,
)
from extender.placement.eviction_limiter import EvictionLimiter
from extender.placement.index import Records
from extender.placement.kept_back import NOT_READY, REASONS, InVain, as_found, awake, kept_back
from extender.placement.lingering import over, still_held
from extender.placement.next_effect import (
    after_outcome,
    asked_all_the_same,
    give_back,
    has_no_node,
    is_outdated,
    next_attempt,
    next_step,
    next_word,
    no_node,
    not_now,
    word_again,
)
from extender.placement.on_job import after_grace, after_poll
from extender.placement.on_pod import (
    MISSED,
    after_absence,
    after_deletion,
    after_end,
    after_pod,
    is_back,
    refused,
)
from extender.placement.placeholder import NO_OFFER, WATCHED, Due, Placeholder, Refusal, State
from extender.placement.recovery import recovered
from extender.placement.retries import Retries
from extender.placement.signatures import Signatures
from extender.placement.submit_queues import SubmitQueues
from extender.request.job_request import Request
from extender.request.node_constraints import ANYWHERE, gains
from extender.request.pod import Pod
from slurm_client.model import Grant, JobSpec

_AT_ONCE = 50  # some milliseconds
_PLACED = frozenset({State.BOUND, State.EVICTING, State.RELEASING, State.DONE})
_NOTHING = Request(JobSpec("", 0, 0), ANYWHERE)
_ASKED_AGAIN = "Slurm is asked again when the Pod is annotated, or at"

Observer = Callable[[Placeholder | None, Placeholder], None]
_Item = TypeVar("_Item")


class Ledger:
    """Events in, effects out. `observer` hears of every change of state, before and after; `held_back`
    of every change in what the eviction limiter delays; `unsigned` of jobs without their keys;
    `in_vain` of every change in which Pods kube-scheduler binds nowhere."""

    def __init__(
        self,
        rules: PlacementConfig,
        observer: Observer | None = None,
        held_back: eviction_limiter.Heard = lambda *_: None,
        unsigned: signatures.Heard = lambda _: None,
        in_vain: Callable[[InVain], object] = lambda _: None,
    ) -> None:
        self._rules = rules
        self._eviction_limiter = EvictionLimiter(rules.deletions_a_minute, held_back)
        self._signatures = Signatures(unsigned)
        self._in_vain = InVain(in_vain)
        self._observer = observer
        self._view = ClusterView()
        self._records = Records()
        self._avoiding: set[str] = set()
        """Who was refused a Node of late, and may be given another: each Pod that leaves has them looked
        through."""
        self._windows = SubmitQueues(rules.window, rules.fast_path_rest, self._view.max_job_count)
        self._retries = Retries(*rules.retry)
        self._untold: OrderedDict[str, float] = OrderedDict()
        """Who came in line, or was refused with others, and when to tell it so."""
        self._to_tell_when: OrderedDict[str, float] = OrderedDict()
        """Who is refused until another time than before, and when to tell it so."""
        self._to_tell_again: OrderedDict[str, float] = OrderedDict()
        """Who was told why it waits, and when to tell it again: Events are forgotten."""
        self._told_at = -inf
        self._wakes: list[tuple[float, str]] = []
        self._effects: list[Effect] = []
        self._now = 0.0
        self._to_review: dict[str, None] = {}
        """Who is to be looked at: the Nodes, those that it avoids, or what Slurm takes have changed."""
        self._put_off = False
        """More is to be done at this moment than an event may bring about."""
        self._handlers: dict[type, Callable[[Any], None]] = {
            Outcome: self._outcome,
            Recovered: self._recovered,
            OrphanFound: self._orphan,
            PodObserved: self._pod_observed,
            PodVanished: self._pod_vanished,
            JobsPolled: self._jobs_polled,
            GraceStarted: self._grace_started,
            ClusterObserved: self._cluster_observed,
            Tick: self._tick,
        }

    # What others may ask

    @property
    def rules(self) -> PlacementConfig:
        """Returns the numbers that it goes by."""
        return self._rules

    @property
    def placeholders(self) -> Iterator[Placeholder]:
        """Yields every record, tombstones included."""
        return iter(self._records)

    def record_of(self, uid: str) -> Placeholder | None:
        """Returns the record under one of the ledger's own keys."""
        return self._records.get(uid)

    def allocated(self, uid: str) -> Placeholder | None:
        """Returns the record of a Pod that carries its allocation and is not bound."""
        record = self._records.get(uid)
        if record is None or record.state is not State.ALLOCATED or record.allocation is None:
            return None
        return record if record.pod.allocation == record.allocation else None

    def holding(self, node: str) -> tuple[Placeholder, ...]:
        """Returns the records whose Pods are on a Node, or may yet be bound there."""
        return self._records.holding(node)

    def has_job(self, job_id: int) -> bool:
        """Tells whether a job is known to be a placeholder of ours, whatever it has for a key."""
        return any(record.job_id == job_id and record.ours for record in self._records)

    @property
    def evicting(self) -> Iterator[Placeholder]:
        """Yields the records whose jobs ended first, while their Pods are still there."""
        return iter(self._records.of(State.EVICTING))

    def watched_jobs(self) -> frozenset[int]:
        """Returns the ids of the jobs whose states matter."""
        return frozenset(
            p.job_id for p in self._records.of(*WATCHED) if p.job_id is not None and p.watched
        )

    def jobs_with_grace(self) -> dict[str, int]:
        """Returns, by uid, the jobs of bound Pods that have time to leave when Slurm preempts them."""
        if not self._view.gives_grace:
            return {}
        return {
            p.pod.uid: p.job_id
            for p in self._records.of(State.BOUND)
            if p.job_id is not None and not p.pod.leaving and self._view.has_grace(p.pod.request.job)
        }

    def waits(self) -> bool:
        """Tells whether a change in Slurm would move a Pod on at once."""
        return self._records.any_of(State.QUEUED)

    def next_wake(self) -> float:
        """Returns when a Tick is due, on the caller's clock; infinity where none is."""
        if self._put_off:
            return self._now
        wake = self._wakes[0][0] if self._wakes else inf
        opens = min(self._windows.opens, self._retries.opens, self._eviction_limiter.opens)
        to_tell = (self._untold, self._to_tell_when, self._to_tell_again)
        return min(wake, opens, *map(self._next_of, to_tell))

    # The one door

    def apply(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Takes an event in and returns what is to be done. `now` never goes back."""
        self._now = now
        self._handlers[type(event)](event)
        if not isinstance(event, Recovered):  # who is in Slurm's queue must be known first
            self._catch_up()
        for uid in self._eviction_limiter.turns(now):
            self._settle(self._records[uid]._replace(not_before=0.0))
        self._tell_of(self._untold)
        self._tell_of(self._to_tell_when)
        self._tell_again()
        effects, self._effects = tuple(self._effects), []
        return effects

    # Events

    def _outcome(self, event: Outcome) -> None:
        record = self._records.get(event.effect.uid)
        if record is None:
            return
        if _found_no_room(event):
            self._windows[self._partition(record)].had_no_room(self._now)
        if _is_granted(event) and not self._signatures.trusted(self._partition(record)):
            event = Outcome(event.effect, None)  # it is read, whatever it was given
        after = after_outcome(record, event, self._context())
        if isinstance(event.effect, ReportWaiting):
            # If the Pod still waits for that later, it is told again.
            self._to_tell_again[record.pod.uid] = self._now + self._rules.telling_again
            self._to_tell_again.move_to_end(record.pod.uid)
        self._settle(after)

    def _recovered(self, event: Recovered) -> None:
        record, stray = recovered(event.pod, event.jobs, self._context())
        if record is not None:
            self._settle(record)
        for job in stray:
            pod = event.pod._replace(uid=f"{event.pod.uid}#{job.id}")
            self._settle(_stray(pod, job.id, self._now, ours=True))

    def _orphan(self, event: OrphanFound) -> None:
        key = event.key
        record = self._records.get(key.uid)
        if record is not None and record.attempt < key.attempt:
            return  # that another replica has numbered this attempt is news that is on its way
        if record is not None and record.attempt == key.attempt:
            if record.state is State.REFUSED or self._is_kept_back(record):
                self._settle(asked_all_the_same(record, key.attempt_try, event.job_id, self._now))
                return
            if record.state is State.SEEN or record.job_id == event.job_id:
                return  # it has that job, or will find it under the id that it asks for
        pod = Pod(f"{key.uid}#{event.job_id}", key.namespace, key.name, "", _NOTHING)
        stray = _stray(pod, event.job_id, self._now, ours=False)
        # It may end before it is read again: until then nobody else would know of its Pod's containers.
        self._settle(still_held(stray, event.job, self._context()) if event.job else stray)

    def _is_kept_back(self, record: Placeholder) -> bool:
        return record.state is State.SEEN and kept_back(record, self._now) is not None

    def _pod_observed(self, event: PodObserved) -> None:
        pod = event.pod
        record = self._records.get(pod.uid)
        if record is not None and record.missing:  # here it is
            self._eviction_limiter.forget(pod.uid)
            if record.held_back:  # its Pod is to be deleted all the same: it asks anew
                record = record._replace(not_before=0.0)
        if record is not None and is_back(record, pod):
            self._forget(pod.uid)
            record = None
        if record is not None or not pod.finished:
            self._settle(after_pod(record or self._seen(pod), pod, self._context()))
        if record is not None and record.pod.touch != pod.touch:
            self._hasten(pod.uid, self._rules.retry_touched)

    def _seen(self, pod: Pod) -> Placeholder:
        return Placeholder(pod, since=self._now, first_seen=self._now, attempt=pod.attempt)

    def _pod_vanished(self, event: PodVanished) -> None:
        record = self._records.get(event.uid)
        if record is None:
            return
        if event.seen:
            self._settle(after_deletion(record, event.last, self._now))
        else:
            self._settle(after_absence(record, self._now))

    def _jobs_polled(self, event: JobsPolled) -> None:
        at = self._context()
        for record in self._records.of(*WATCHED):
            known = record.job_id in event.asked and record.since <= event.asked_at
            if known and record.watched:
                state = event.states.get(record.job_id or 0)
                moved = after_poll(record, state, at)
                if moved is not record:
                    self._settle(moved)

    def _grace_started(self, event: GraceStarted) -> None:
        record = self._records.get(event.uid)
        if record is not None:
            self._settle(after_grace(record, event.job, self._context()))

    def _cluster_observed(self, event: ClusterObserved) -> None:
        mended = event.view.partitions != self._view.partitions
        regained, self._view = self._regained(event.view), event.view
        for node in regained:
            self._reopen(node)
        self._windows.wake(self._view.max_job_count)
        refused = self._retries.one_of_each()
        for uid in refused if mended else ():
            self._hasten(uid, self._rules.retry[0])
        self._to_review |= dict.fromkeys(refused)
        waiting = self._records.of(State.QUEUED)
        self._to_review |= dict.fromkeys(record.pod.uid for record in waiting)

    def _regained(self, view: ClusterView) -> set[str]:
        """Returns the Nodes that were refused of late, and may not be any more. kube-scheduler looks at
        those Pods again by itself."""
        avoided = {name for uid in self._avoiding for name, _ in self._records[uid].avoid}
        nodes = ((name, self._view.nodes.get(name), view.nodes.get(name)) for name in avoided)
        return {name for name, old, new in nodes if old and new and old is not new and gains(old, new)}

    def _tick(self, event: Tick) -> None:
        del event
        for uid in self._some(self._due()):
            record = self._records.get(uid)
            if record is not None:
                self._settle(record)

    def _due(self) -> Iterator[str]:
        while self._wakes and self._wakes[0][0] <= self._now:
            yield heapq.heappop(self._wakes)[1]

    def _context(self) -> Context:
        return Context(self._now, self._rules, self._view)

    # What follows for others

    def _some(self, items: Iterator[_Item]) -> Iterator[_Item]:
        """Yields as many as one event may bring about, and one at least: of those that are soon done
        some, and of those for whom the Nodes must be looked at one. The others come with the next Tick,
        which is due at once: everything else gets its turn between."""
        evaluated = self._view.evaluated
        for number, item in enumerate(items, 1):
            yield item
            if number == _AT_ONCE or self._view.evaluated > evaluated:
                self._put_off = True
                return

    def _catch_up(self) -> None:
        self._put_off = False
        if self._to_review:
            for uid in self._some(self._reviews()):
                record = self._records.get(uid)
                if record is not None:
                    self._review(record)
        for uid in self._some(self._retries.turns(self._now)):
            self._tell_when(uid)
            self._settle(self._records[uid].move(State.SEEN, self._now))
        if self._windows.stirred(self._now):
            for partition, uid in self._some(self._windows.turns(self._now)):
                self._settle(self._begin(self._records[uid], partition))

    def _reviews(self) -> Iterator[str]:
        while self._to_review:
            uid = next(iter(self._to_review))
            del self._to_review[uid]
            yield uid

    def _review(self, record: Placeholder) -> None:
        match record.state:
            case State.REFUSED if record.slurm_refuses and self._retries.due(record.pod.uid) is None:
                self._settle(record.move(State.SEEN, self._now))
            case State.REFUSED if record.slurm_refuses and is_outdated(record, self._context()):
                self._hasten(record.pod.uid, self._rules.retry[0])
            case State.QUEUED if is_outdated(record, self._context()):
                self._settle(record._replace(not_before=0.0))
            case State.SEEN | State.SUBMITTING:
                self._settle(record)

    def _hasten(self, uid: str, pause: float) -> None:
        if self._retries.hasten(uid, self._now, pause):
            self._tell_when(uid)

    def _tell_when(self, uid: str) -> None:
        """What a refused Pod asks for is asked for at another time, and so for those that are alike.
        They may be very many, and others have not been told anything yet."""
        for each in self._retries.alike(uid):
            self._to_tell_when.setdefault(each, self._now + self._rules.settle)

    def _tell_soon(self, uid: str) -> None:
        self._untold.setdefault(uid, self._now + self._rules.settle)

    # What follows from a record

    def _settle(self, record: Placeholder) -> None:
        """Stores a record, after the moves that follow from it by itself, and asks for its effects."""
        if _is_replaced(record):
            self._bury(record)
        record = self._follow(record)
        uid = record.pod.uid
        before = self._records.get(uid)
        if record.state is State.DONE and self._now >= record.not_before:
            self._forget(uid)
            return
        if before is None or before.state is not record.state:
            self._note_move(before, record)
        record = self._emit(record)
        self._records.put(record)
        partition = self._partition(record)
        self._line_up(record, partition)
        self._wake(before, record)
        self._signatures.follow(partition, record)
        avoiding = record.avoid and record.state not in _PLACED
        (self._avoiding.add if avoiding else self._avoiding.discard)(uid)
        if record.state is State.RELEASING and before is not None and before.state is not record.state:
            self._reopen(record.pod.node)
        if record.lingers_until and record.job_over:
            self._delay_binding(record.holds)
        if record.missing and (record.job_over or self._eviction_limiter.passes(record, self._now)):
            self._settle(after_end(record, self._now, MISSED))

    def _forget(self, uid: str) -> None:
        if (record := self._records.get(uid)) is not None:
            self._in_vain.forget(record)
        self._records.drop(uid)
        self._to_tell_again.pop(uid, None)
        self._retries.leave(uid)
        self._avoiding.discard(uid)
        self._windows.forget(uid)
        self._eviction_limiter.forget(uid)
        self._signatures.forget(uid)

    def _line_up(self, record: Placeholder, partition: str) -> None:
        why = kept_back(record, self._now) if record.state is State.SEEN else None
        self._in_vain.note(record, why)
        if why is not None:
            self._windows.forget(record.pod.uid)
        else:
            self._windows.follow(partition, record, self._now)

    def _note_move(self, before: Placeholder | None, record: Placeholder) -> None:
        uid = record.pod.uid
        self._eviction_limiter.forget(uid)
        if not record.slurm_refuses:
            self._retries.leave(uid)
        if before is not None and before.state is State.SUBMITTING:
            self._to_review |= dict.fromkeys(self._retries.take(record))
        if record.state is State.SEEN:
            self._tell_soon(uid)
        if self._observer is not None:
            self._observer(before, record)

    def _reopen(self, node: str | None) -> None:
        """A Pod has left a Node, or there is more on it: those that were refused there may ask again."""
        for uid in tuple(self._avoiding) if node is not None else ():
            record = self._records[uid].without_old_news(self._now)
            avoid = tuple((name, until) for name, until in record.avoid if name != node)
            if avoid != record.avoid:
                self._records.put(awake(record._replace(avoid=avoid, offered=NO_OFFER)))
                self._to_review[uid] = None
            if not avoid:
                self._avoiding.discard(uid)

    def _follow(self, record: Placeholder) -> Placeholder:
        now, rules = self._now, self._rules
        record = over(record, now).without_old_news(now)
        match record.state:
            case State.SEEN:
                why_not = _refusal(record)
                return self._in_line(record) if why_not is None else refused(record, why_not, now)
            case State.REFUSED if (
                record.forbidden_because is not None and now >= record.forbidden_because.until
            ):
                return self._follow(record.move(State.SEEN, now, forbidden_because=None))
            case State.REFUSED if record.slurm_refuses:
                return self._until_retried(record)
            case State.DONE if not record.not_before:  # no job was made: nothing can come back
                return record._replace(not_before=now)
            case State.RELEASING if (
                record.job_over and not record.in_flight and not record.lingers_until
            ):
                until = now + rules.tombstone
                return record.move(State.DONE, now, cause=record.cause, not_before=until)
            case State.REPLACING if _is_replaced(record):
                # It may be refused by now, or placed by another replica.
                begun = next_attempt(record, now)
                return self._follow(after_pod(begun, begun.pod, self._context()))
            case State.ALLOCATED if record.unbound_by < inf:
                return self._until_bound(record)
        return record

    def _delay_binding(self, node: str | None) -> None:
        """Gives those that are to be bound beside containers the time that these take."""
        for each in self._records.holding(node) if node else ():
            if each.state is State.ALLOCATED:
                self._settle(each)

    def _until_bound(self, record: Placeholder) -> Placeholder:
        """No Pod is bound beside containers that outlive another and its job (`Binder`): the deadline
        begins anew when they have ended."""
        clear = self._clear_at(record.holds) if record.holds else 0.0
        if clear > self._now:
            by = max(record.unbound_by, clear + self._rules.unbound_deadline)
            return record._replace(unbound_by=by)
        if record.awaits_volume:
            by = max(record.unbound_by, record.since + self._rules.volume_deadline)
            record = record._replace(unbound_by=by)
        due = self._now >= record.unbound_by and not record.in_flight
        return give_back(record, self._context()) if due else record

    def _until_retried(self, record: Placeholder) -> Placeholder:
        uid = record.pod.uid
        before = self._records.get(uid)
        if before is None or before.state is not State.REFUSED:
            self._retries.refuse(record, self._now)
            if record.asks_from > -inf:  # it was changed before: somebody may do that all the time
                record = record._replace(asks_from=self._now + self._rules.retry_touched)
        at = self._retries.due(uid)
        dues = () if at is None else (Due(_ASKED_AGAIN, at),)
        return record._replace(cause=record.cause and replace(record.cause, dues=dues))

    def _in_line(self, record: Placeholder) -> Placeholder:
        """A Pod that is kept back is told why. A claim may be made a moment after its Pod."""
        why, told = kept_back(record, self._now), record.cause
        if why is not None:
            soon = why.reason == NOT_READY and self._now < record.since + self._rules.settle
            return record if soon and told is None else record._replace(cause=why)
        if told is None or told.reason not in REASONS:
            return record
        self._tell_soon(record.pod.uid)
        return record._replace(cause=None)

    def _bury(self, record: Placeholder) -> None:
        """Leaves a tombstone for the job of an attempt that is over: it may come back."""
        if record.job_id is None:  # it had none
            return
        pod = record.pod._replace(uid=f"{record.pod.uid}#{record.job_id}")
        until = self._now + self._rules.tombstone
        self._settle(record._replace(pod=pod, state=State.DONE, since=self._now, not_before=until))

    def _emit(self, record: Placeholder) -> Placeholder:
        if record.missing:  # there is nobody to write to
            return record
        if not record.in_flight and self._now >= record.not_before:
            record = self._emit_step(record)
        quiet = record.showing or self._now < record.quiet_until
        word = None if quiet else next_word(record)
        if word is not None:
            self._effects.append(word)
            record = record._replace(showing=True)
        return record

    def _emit_step(self, record: Placeholder) -> Placeholder:
        unsent = record.state is State.SUBMITTING and not record.exists
        if unsent and has_no_node(record, self._context()):
            record = not_now(record, no_node(record, self._context()))
            if record.in_line:
                return record
        if unsent and record.immediate and not self._windows[self._partition(record)].fast(self._now):
            record = record._replace(immediate=False)  # it is asked again, and others wait by now
        step = next_step(record, self._context())
        if step is None:
            return record
        waits = self._held_back(record, step)
        if waits is not None:
            return waits
        if isinstance(step, ReadJob) and step.for_words:
            return self._ask_why(record, step)
        self._effects.append(step)
        return record._replace(in_flight=True)

    def _held_back(self, record: Placeholder, step: Effect) -> Placeholder | None:
        """Returns the record where its step must wait: for the eviction limiter, or for containers."""
        if isinstance(step, WriteAllocation):
            clear = self._clear_at(step.allocation.node)
            return record._replace(not_before=clear) if clear > self._now else None
        deletes = isinstance(step, EvictPod) or (isinstance(step, CancelJob) and record.unseen)
        if deletes and not self._eviction_limiter.passes(record, self._now):  # told one after the other
            told_at = self._now + self._eviction_limiter.held * self._rules.telling_interval
            return record._replace(not_before=inf, quiet_until=told_at)
        return None

    def _clear_at(self, node: str) -> float:
        """Returns when the last containers have ended on a Node whose Pod and job are both over."""
        lingering = self._records.lingering(node)
        return max((each.lingers_until for each in lingering if each.job_over), default=0.0)

    def _ask_why(self, record: Placeholder, step: ReadJob) -> Placeholder:
        """It may take its time among very many of its kind: the record moves on meanwhile."""
        if record.asked_why is not None:
            return record
        self._effects.append(step)
        return record._replace(asked_why=self._now)

    def _wake(self, before: Placeholder | None, record: Placeholder) -> None:
        """What was due before is noted already: a Pod that rests may have another version very often."""
        noted = () if before is None else _dues(before)
        for due in _dues(record):
            if self._now < due < inf and due not in noted:
                heapq.heappush(self._wakes, (due, record.pod.uid))

    # Turns

    def _partition(self, record: Placeholder) -> str:
        """Returns the partition whose window it is in; a list of them ("a,b") has one of its own."""
        name = self._view.partition_name(record.pod.request.job.partition)
        return ",".join(sorted(set(name.split(",")))) if "," in name else name

    def _pause(self, record: Placeholder) -> float:
        """A Pod whose allocations cannot be used, again and again, tries less and less often."""
        failed = record.attempt - 3
        return self._now + self._rules.delay(Remedy.LATER, failed) if failed >= 0 else 0.0

    def _begin(self, record: Placeholder, partition: str) -> Placeholder:
        fast = self._is_fast(record, partition)
        if record.state is State.SUBMITTING:  # it was refused for now
            return record._replace(immediate=fast, not_before=0.0)
        begun = as_found(record, self._context()).move(
            State.SUBMITTING,
            self._now,
            immediate=fast,
            not_before=max(self._pause(record), record.asks_from),
            asks_first=False,
            rests_until=0.0,
        )
        return begun.submitted_as(self._rules.cluster, self._rules.ids, record.attempt_try)

    def _is_fast(self, record: Placeholder, partition: str) -> bool:
        job = record.pod.request.job
        return (
            self._rules.fast_path
            and record.attempt_try == 0
            and job.user_id is None
            and job.group_id is None
            and not self._view.may_preempt(partition)
            and self._windows[partition].fast(self._now)
        )

    def _next_of(self, to_tell: OrderedDict[str, float]) -> float:
        """Returns when the first of them is told: one after the other, since there may be very many."""
        if not to_tell:
            return inf
        return max(next(iter(to_tell.values())), self._told_at + self._rules.telling_interval)

    def _tell_again(self) -> None:
        while self._next_of(self._to_tell_again) <= self._now:
            uid, _ = self._to_tell_again.popitem(last=False)
            record = self._records.get(uid)
            word = None if record is None else word_again(record)
            if record is not None and word is not None:
                self._told_at = self._now
                self._effects.append(word)
                self._records.put(record._replace(showing=True))

    def _tell_of(self, to_tell: OrderedDict[str, float]) -> None:
        while self._next_of(to_tell) <= self._now:
            record = self._records.get(to_tell.popitem(last=False)[0])
            if record is not None and record.state is State.SEEN and record.cause is None:
                self._told_at = self._now
                self._settle(record._replace(cause=self._windows.why(record.pod.uid)))
            elif record is not None and record.slurm_refuses:
                self._told_at = self._now
                self._settle(record)


def _stray(pod: Pod, job_id: int, now: float, *, ours: bool) -> Placeholder:
    """Returns the record of a job that no Pod is placed by: it is to be ended."""
    return Placeholder(pod, State.RELEASING, since=now, job_id=job_id, ours=ours)


def _refusal(record: Placeholder) -> Refusal | None:
    """Returns why its Pod cannot be placed as it is."""
    problems = record.pod.request.problems
    return Refusal("; ".join(problems)) if problems else record.forbidden_because


def _dues(record: Placeholder) -> tuple[float, ...]:
    """Returns when a record is to be looked at again; what is past, and infinity, do not count."""
    next_effect = inf if record.in_flight else record.not_before
    again = inf if record.forbidden_because is None else record.forbidden_because.until
    dues = record.quiet_until, record.unbound_by, record.lingers_until, record.rests_until
    return next_effect, again, *dues


def _is_replaced(record: Placeholder) -> bool:
    done = record.written and record.job_over and not record.in_flight
    return record.state is State.REPLACING and done


def _is_granted(event: Outcome) -> bool:
    return isinstance(event.effect, Submit) and isinstance(event.result, Grant)


def _found_no_room(event: Outcome) -> bool:
    return (
        isinstance(event.effect, Submit)
        and isinstance(event.result, Failure)
        and event.result.remedy is Remedy.NO_ROOM
    )
