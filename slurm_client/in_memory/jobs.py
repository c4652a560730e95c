"""The jobs of an `InMemorySlurm`, by id and by when each has to be looked at next."""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from slurm_client.in_memory.history import Journal
from slurm_client.in_memory.record import Record


class Jobs:
    """All records that Slurm remembers. Every change goes through `put`, so that it can be undone."""

    def __init__(self, min_job_age_s: float, journal: Journal, next_id: int) -> None:
        self._min_job_age_s = min_job_age_s
        self._journal = journal
        self.next_id = next_id
        """The id of the next job for which none is chosen, unless a job has it."""
        self._records: dict[int, Record] = {}
        self._pending: defaultdict[str, set[int]] = defaultdict(set)
        """Ids by partition."""
        self._deadlines: list[tuple[float, int]] = []
        self._forget: list[tuple[float, int]] = []

    def get(self, job_id: int) -> Record | None:
        return self._records.get(job_id)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._records

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._records.values()))

    def pending(self) -> list[Record]:
        """Those that wait: highest priority first, then the oldest."""
        waiting = (record for partition in self._pending for record in self.waiting(partition))
        return sorted(waiting, key=lambda record: (-record.priority, record.order))

    def waiting(self, partition: str) -> Iterator[Record]:
        """Those that wait there, in no order."""
        return (self._records[job_id] for job_id in self._pending.get(partition, ()))

    def put(self, record: Record, now: float) -> None:
        """Add it, or replace what is there."""
        before = self._records.get(record.id)
        self._journal.add(now, partial(self._restore, record.id, before))
        self._index(record)

    def take_id(self, now: float) -> int:
        """Returns the next id, which is used up."""
        self._journal.add(now, partial(setattr, self, "next_id", self.next_id))
        while self.next_id in self._records:
            self.next_id += 1
        self.next_id += 1
        return self.next_id - 1

    def next_deadline(self) -> float:
        """When the next time limit is reached; infinite when there is none."""
        self._drop_stale_deadlines()
        return self._deadlines[0][0] if self._deadlines else float("inf")

    def past_deadline(self, now: float) -> Iterator[Record]:
        """Running jobs whose time is over; the caller ends each before it asks for the next."""
        while self.next_deadline() <= now:
            yield self._records[self._deadlines[0][1]]

    def forget(self, now: float) -> None:
        """Drop what ended MinJobAge ago: from then on the id is free again."""
        while self._forget and self._forget[0][0] <= now:
            _, job_id = heapq.heappop(self._forget)
            record = self._records.get(job_id)
            if record and record.ended is not None and self._forget_at(record.ended) <= now:
                del self._records[job_id]

    def _restore(self, job_id: int, before: Record | None) -> None:
        if now := self._records.pop(job_id, None):
            self._pending[now.partition].discard(job_id)
        if before:
            self._index(before)

    def _index(self, record: Record) -> None:
        self._records[record.id] = record
        if record.state.pending:
            self._pending[record.partition].add(record.id)
        else:
            self._pending[record.partition].discard(record.id)
        if record.state.base == "RUNNING" and record.deadline is not None:
            heapq.heappush(self._deadlines, (record.deadline, record.id))
        if record.ended is not None:
            heapq.heappush(self._forget, (self._forget_at(record.ended), record.id))

    def _forget_at(self, ended: float) -> float:
        return ended + self._min_job_age_s

    def _drop_stale_deadlines(self) -> None:
        while self._deadlines:
            deadline, job_id = self._deadlines[0]
            record = self._records.get(job_id)
            if record and record.state.base == "RUNNING" and record.deadline == deadline:
                return
            heapq.heappop(self._deadlines)
