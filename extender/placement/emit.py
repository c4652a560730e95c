"""Which effects of a record are carried out now, and which must wait for others."""

from __future__ import annotations

from extender.placement.attempts import not_now
from extender.placement.config import Context
from extender.placement.eligible_nodes import has_no_node, no_node
from extender.placement.events import CancelJob, Effect, EvictPod, ReadJob, WriteAllocation
from extender.placement.eviction_limiter import EvictionLimiter
from extender.placement.index import Records
from extender.placement.placeholder import Placeholder
from extender.placement.report import next_report
from extender.placement.retry import Waits
from extender.placement.states import State
from extender.placement.submit_queues import SubmitQueues, queue_of
from extender.placement.table import next_effect


class Emitter:
    """Asks records for their effects, as far as the others let them."""

    def __init__(self, records: Records, queues: SubmitQueues, limiter: EvictionLimiter) -> None:
        self._records = records
        self._queues = queues
        self._limiter = limiter

    def emit(self, record: Placeholder, at: Context, effects: list[Effect]) -> Placeholder:
        """Adds what is to be done now to the effects, and returns the record with that under way."""
        if record.unlisted:  # there is nobody to write to
            return record
        if record.retry.is_due(at.now):
            record = self._emit_next(record, at, effects)
        while (report := next_report(record, at.now)) is not None:
            effects.append(report)
            record = record.with_member(report.pod, reporting=True)
        return record

    def clear_at(self, node: str) -> float:
        """Returns when the last containers have ended on a Node whose Pod and job are both over."""
        lingering = self._records.lingering(node)
        return max((each.lingers_until for each in lingering if each.job.over), default=0.0)

    def _emit_next(self, record: Placeholder, at: Context, effects: list[Effect]) -> Placeholder:
        if record.state is State.SUBMITTING and not record.job.must_read:
            if has_no_node(record, at):
                return not_now(record, no_node(record, at))
            if record.job.immediate and not self._queues[queue_of(record, at.view)].fast(at.now):
                record = record.with_job(immediate=False)  # it is asked again, and others wait by now
        effect = next_effect(record, at)
        if effect is None:
            return record
        waits = self._must_wait(record, effect, at)
        if waits is not None:
            return waits
        if isinstance(effect, ReadJob) and effect.for_words:
            # It may take its time among very many of its kind: the record moves on meanwhile.
            if record.job.asked_why is None:
                effects.append(effect)
                record = record.with_job(asked_why=at.now)
            return record
        effects.append(effect)
        return record.with_retry(in_flight=True)

    def _must_wait(self, record: Placeholder, effect: Effect, at: Context) -> Placeholder | None:
        """Returns the record where its effect must wait: for the limiter, or for containers."""
        if isinstance(effect, WriteAllocation):
            clear = self.clear_at(effect.allocation.node)
            return record.with_retry(not_before=clear) if clear > at.now else None
        deletes = isinstance(effect, EvictPod) or (isinstance(effect, CancelJob) and record.unseen)
        if deletes and not self._limiter.passes(record, at.now):  # told one after the other
            told_at = at.now + self._limiter.held * at.rules.telling_interval
            return record.with_members(quiet_until=told_at).with_retry(waits=Waits.FOR_LIMITER)
        return None
