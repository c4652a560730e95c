"""Stores each changed record, and handles the consequences of the change.

A changed record goes through three steps. `_settle` makes the moves that are due without further news,
and stores the record. `_perform` emits the effects. `_note` updates the ledger's lists: turns, Pods kept
back, and due times. If moves of other records follow, the moves are queued. So no step calls itself.
"""

from collections.abc import Callable, Iterable

from extender.jobs.phase import Phase
from extender.node_view.view import ClusterView
from extender.placement import key_checks
from extender.placement.emit import Emitter
from extender.placement.index import LedgerReader
from extender.placement.key_checks import KeyChecks
from extender.placement.nodes.rejecting_nodes import RejectingNodes
from extender.placement.pods_apart import PodsApart
from extender.placement.transitions.attempts import follow, is_replaced
from extender.placement.transitions.kept_back import UnbindablePods, awake, kept_back
from extender.placement.wakes import ToTell, Wakes
from extender.record.config import Context, PlacementConfig
from extender.record.events import (
    Effect,
)
from extender.record.members import Members, new_slots
from extender.record.placeholder import NO_NODES, Placeholder, orphan_uid
from extender.record.rejections import NO_OFFER
from extender.record.states import IN_QUEUES, State
from extender.turns import eviction_limiter
from extender.turns.backoff import Retries
from extender.turns.equivalence import window_of
from extender.turns.eviction_limiter import EvictionLimiter
from extender.turns.window import Windows
from wellknown.allocation import Allocation

_PLACED = frozenset({State.BOUND, State.EVICTING, State.RELEASING, State.DONE})

Observer = Callable[[Placeholder | None, Placeholder], None]


class Settled(LedgerReader):
    """The records, with the lists that depend on the records. Each argument except `rules` is a function
    for the ledger to call. `observer` gets the record before and after each change of a state, and after
    the loss of a job. `throttled` gets each change of the delayed evictions. `lost_keys` gets a text
    about jobs without keys. `unbindable` gets each change of the Pods that kube-scheduler can bind to no
    Node. `lingers` gets each record with new containers that may outlive their Pods."""

    def __init__(
        self,
        rules: PlacementConfig,
        observer: Observer | None = None,
        throttled: eviction_limiter.OnChange = lambda *_: None,
        lost_keys: key_checks.OnChange = lambda _: None,
        unbindable: Callable[[UnbindablePods], object] = lambda _: None,
        lingers: Callable[[Placeholder], object] = lambda _: None,
    ) -> None:
        super().__init__()
        self.rules = rules
        self._eviction_limiter = EvictionLimiter(rules.evictions_per_minute, throttled)
        self._key_checks = KeyChecks(lost_keys)
        self._unbindable = UnbindablePods(unbindable)
        self._lingers = lingers
        self._observer = observer
        self._view = ClusterView()
        self._avoiding: set[str] = set()
        """Uids of records with rejected Nodes. If another Pod leaves such a Node, the Node may fit
        again."""
        self._windows = Windows(rules.window, rules.fast_path_rest, self._view.max_job_count)
        self._emitter = Emitter(self._records, self._windows, self._eviction_limiter)
        self._retries = Retries(*rules.retry)
        self.rejecting_nodes = RejectingNodes(rules.kubelet_rejections, rules.closed_by_kubelet)
        self._to_tell = ToTell(rules.in_line_report_pause)
        self._wakes = Wakes()
        self._effects: list[Effect] = []
        self._to_review: dict[str, None] = {}
        """Placeholders to review: their Nodes, excluded Nodes, or Slurm's limits changed."""
        self._to_offer: dict[str, None] = {}
        """Groups that may now have room for a Pod kept out before."""
        self._apart = PodsApart(self._to_review)
        self._at = Context(0.0, rules, self._view, rejecting=self.rejecting_nodes.closed_to)
        self._to_reread: dict[str, None] = {}
        """Records at the start of another attempt. The ledger checks the Pods of these records again
        (`after_pods`)."""
        self._missed: dict[str, None] = {}
        """Records with Pods missing from a list of all Pods. The ledger now treats the missing Pods as
        deleted."""
        self._doubted: dict[str, None] = {}
        """Records of Pods on cores or devices that Slurm has given to another Pod's job."""
        self._freed: dict[str, None] = {}
        """Allocated records on Nodes that another Pod, or its containers, has left."""
        self._settled: dict[str, Placeholder | None] = {}
        """Stored records for which `_perform` and `_note` are still to be called. The value is the
        record before the change."""
        self._put_off = False
        """True if more work is due now than a single event may handle."""

    def _settle(self, record: Placeholder) -> None:
        """Makes the moves that follow from the record itself, and stores the record. Then calls
        `_perform` and `_note` for the record."""
        if is_replaced(record):
            self._bury(record)
            self._to_reread[record.uid] = None
        record = self._followed(record)
        before = self._records.get(record.uid)
        if record.state is State.DONE and self._at.now >= record.retry.not_before:
            if self._records.next_for(record, self._at.now) is None:
                self._forget(record.uid)
            else:
                self._to_offer[record.uid] = None
            return
        self._observe(before, record)
        if record.lingering and (before is None or record.lingering != before.lingering):
            self._lingers(record)
        self._records.put(record)
        self._settled.setdefault(record.uid, before)
        self._finish_settled()

    def _finish_settled(self) -> None:
        """Calls `_perform` and `_note` for the stored records, including records stored during the
        calls."""
        while self._settled:
            uid = next(iter(self._settled))
            before = self._settled.pop(uid)
            if (record := self._records.get(uid)) is not None:
                self._perform(record)
                self._note(before, self._records[uid])

    def _followed(self, record: Placeholder) -> Placeholder:
        had_cause = record.cause is not None
        record = follow(record, self._at, self._emitter.clear_at)
        if record.rejected_by_slurm:
            record = self._retries.follow(record, self._records.get(record.uid), self._at)
        if record.state is State.SEEN and record.cause is None and had_cause:
            self._to_tell.in_line.setdefault(record.uid, self._at.now + self.rules.report_after)
        return self._apart.checked(record, self._at)

    def _observe(self, before: Placeholder | None, record: Placeholder) -> None:
        """Reports a change of the state, or the loss of the job, to the observer. Updates the lists that
        depend on the state."""
        if before is not None and before.state is record.state:
            if self._observer is not None and record.has_lost_job and not before.has_lost_job:
                self._observer(before, record)
            return
        uid = record.uid
        self._eviction_limiter.forget(uid)
        if not record.rejected_by_slurm:
            self._retries.leave(uid)
        if before is not None:
            self._to_review |= dict.fromkeys(self._retries.take(record, before.state))
        if record.state is State.SEEN:
            self._to_tell.in_line.setdefault(uid, self._at.now + self.rules.report_after)
        if self._observer is not None:
            self._observer(before, record)

    def _perform(self, record: Placeholder) -> None:
        """Emits the effects of a record."""
        if self._records.kept_out:
            self._to_offer[record.uid] = None
        if record.unlisted:  # the Pod may be gone
            if record.job.over or self._eviction_limiter.passes(record, self._at.now):
                self._missed[record.uid] = None
            return
        emitted = self._emitter.emit(record, self._at, self._effects)
        if emitted is not record:
            self._records.put(emitted)

    def _note(self, before: Placeholder | None, record: Placeholder) -> None:
        """Updates all lists with a new version of a record. `before` is the last version."""
        partition = window_of(record, self._view)
        why = kept_back(record, self._at.now) if record.state is State.SEEN else None
        self._unbindable.note(record, why)
        if self._apart.keeps(record, partition, self._at, ready=why is None) or why is not None:
            self._windows.forget(record.uid)
        elif before is None or not IN_QUEUES.isdisjoint((before.state, record.state)):
            self._windows.follow(partition, record, self._at.now)
        self._wakes.note(before, record, self._at.now)
        self._key_checks.follow(partition, record)
        if record.state is State.ALLOCATED and not self._view.shares_cores(record.request.job.partition):
            self._doubt(record.uid, new_slots(before.members if before else (), record.members))
        avoiding = record.rejections.nodes and record.state not in _PLACED
        (self._avoiding.add if avoiding else self._avoiding.discard)(record.uid)
        if record.state is State.RELEASING and before is not None and before.state is not record.state:
            for member in record.members:
                self._reopen(member.pod.life.node)
        self._note_others_on_nodes(before, record)

    def _note_others_on_nodes(self, before: Placeholder | None, record: Placeholder) -> None:
        for node in _left(before, record):
            there = self._records.holding(node)
            self._freed |= dict.fromkeys(each.uid for each in there if each.state is State.ALLOCATED)
        if record.lingering and record.job.over:
            # Pods to be bound beside these containers get a later deadline.
            for node in record.holds:
                self._to_review |= dict.fromkeys(each.uid for each in self._records.holding(node))

    def _doubt(self, uid: str, slots: Iterable[Allocation]) -> None:
        """Notes other records with Pods on parts of the new slots. The extender then reads the jobs of
        the noted records."""
        for slot in slots:
            self._doubted |= dict.fromkeys(each.uid for each in self._records.others_on(slot, uid))

    def _forget(self, uid: str) -> None:
        if (record := self._records.get(uid)) is not None:
            self._unbindable.note(record, None)
        self._records.drop(uid)
        self._to_tell.again.pop(uid, None)
        self._retries.leave(uid)
        self._avoiding.discard(uid)
        for book in (self._windows, self._eviction_limiter, self._key_checks, self._apart):
            book.forget(uid)

    def _bury(self, record: Placeholder) -> None:
        """Leaves a tombstone for the job of a past attempt, because slurmctld may restore the job."""
        if record.job.id is None:  # no job to watch
            return
        uid = orphan_uid(record.workload, record.job.id)
        until = self._at.now + self.rules.tombstone
        over = record.with_phase(Phase.ENDED, self._at.now)
        buried = over._replace(uid=uid, members=Members(), state=State.DONE, since=self._at.now)
        self._settle(buried.with_retry(not_before=until))

    def _reopen(self, node: str | None) -> None:
        """Lets Pods request a rejected Node again, after another Pod has left the Node or the Node has
        grown."""
        for uid in tuple(self._avoiding) if node is not None else ():
            record = self._records[uid].current_rejections(self._at.now)
            avoid = tuple((name, until) for name, until in record.rejections.nodes if name != node)
            if avoid != record.rejections.nodes:
                self._records.put(awake(record.with_rejections(nodes=avoid, offered=NO_OFFER)))
                self._to_review[uid] = None
            if not avoid:
                self._avoiding.discard(uid)


def _left(before: Placeholder | None, record: Placeholder) -> frozenset[str]:
    """Returns the Nodes that Pods of a record, or their containers, have left."""
    if before is None:
        return NO_NODES
    same = before.state is record.state and before.lingering == record.lingering
    if same and len(before.members) == len(record.members):  # the common case
        return NO_NODES
    fewer = len(record.members) < len(before.members) or len(record.lingering) < len(before.lingering)
    return before.holds if fewer else before.holds - record.holds
