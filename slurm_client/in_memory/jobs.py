"""The jobs of an `InMemorySlurm`, by id and by the next due time, and the journal of changes."""

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import partial

from slurm_client.in_memory.record import Record

_KEPT_S = 60.0


class Journal:
    """Can undo the changes of the last minute, because a slurmctld that is killed (kill -9) loses its
    latest changes. 26.05.5 lost up to about 5 s of acknowledged submissions, cancels and node
    changes."""

    def __init__(self) -> None:
        self._undo: deque[tuple[float, Callable[[], None]]] = deque()

    def add(self, now: float, undo: Callable[[], None]) -> None:
        self._undo.append((now, undo))
        while self._undo[0][0] < now - _KEPT_S:
            self._undo.popleft()

    def back_to(self, time: float) -> None:
        """Undoes all changes after `time`, the latest first."""
        while self._undo and self._undo[-1][0] > time:
            self._undo.pop()[1]()


class Jobs:
    """All jobs in slurmctld's memory. Callers change a job only by `put`, so that the journal can undo
    the change."""

    def __init__(self, min_job_age_s: float, journal: Journal) -> None:
        self._min_job_age_s = min_job_age_s
        self._journal = journal
        self._records: dict[int, Record] = {}
        self._pending: defaultdict[str, set[int]] = defaultdict(set)
        """Ids of the waiting jobs, by partition."""
        self._deadlines: list[tuple[float, int]] = []
        self._forget: list[tuple[float, int]] = []

    def get(self, job_id: int) -> Record | None:
        return self._records.get(job_id)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._records

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._records.values()))

    def pending(self) -> list[Record]:
        """Returns the waiting jobs: highest priority first, then the oldest."""
        waiting = (record for partition in self._pending for record in self.waiting(partition))
        return sorted(waiting, key=lambda record: (-record.priority, record.order))

    def waiting(self, partition: str) -> Iterator[Record]:
        """Yields the waiting jobs of a partition, in no order."""
        return (self._records[job_id] for job_id in self._pending.get(partition, ()))

    def put(self, record: Record, now: float) -> None:
        """Adds or replaces a record."""
        before = self._records.get(record.id)
        self._journal.add(now, partial(self._restore, record.id, before))
        self._index(record)

    def next_deadline(self) -> float:
        """Returns the time at which the next running job reaches its time limit. Returns infinity if no
        running job has a time limit."""
        while self._deadlines:
            deadline, job_id = self._deadlines[0]
            record = self._records.get(job_id)
            if record and record.state.base == "RUNNING" and record.deadline == deadline:
                return deadline
            heapq.heappop(self._deadlines)
        return float("inf")

    def past_deadline(self, now: float) -> Iterator[Record]:
        """Yields running jobs over their time limit. The caller ends each job before the next
        iteration."""
        while self.next_deadline() <= now:
            yield self._records[self._deadlines[0][1]]

    def forget(self, now: float) -> None:
        """Forgets each job when MinJobAge has passed since the job's end. The job's id is then free
        again."""
        while self._forget and self._forget[0][0] <= now:
            _, job_id = heapq.heappop(self._forget)
            record = self._records.get(job_id)
            if record and record.ended is not None and record.ended + self._min_job_age_s <= now:
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
            heapq.heappush(self._forget, (record.ended + self._min_job_age_s, record.id))
