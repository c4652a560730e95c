"""The windows of all partitions: each has its own, and all share the places in Slurm's queue."""

from collections.abc import Iterator
from math import inf

from extender.cluster.view import ClusterView
from extender.record.condition_reason import ConditionReason
from extender.record.placeholder import Placeholder
from extender.turns.line import ordered
from extender.turns.places import Places
from extender.turns.ranking import Ranking
from extender.turns.submit_queue import IN_LINE, SubmitQueue

AT_ONCE = 200
"""So many turns are given, and so many windows looked at, before others have their say."""


def queue_of(record: Placeholder, view: ClusterView) -> str:
    """Returns which queue a placeholder is in: that of its partition; a list of them ("a,b") has a queue
    of its own."""
    return ordered(view.partition_name(record.request.job.partition))


class SubmitQueues:
    """Windows are kept while there is anybody in them; a placeholder is in one of them."""

    def __init__(self, size: int, rest: float, max_job_count: int) -> None:
        self._size = size
        self._rest = rest
        self._places = Places(max_job_count)
        self._by_partition: dict[str, SubmitQueue] = {}
        self._of: dict[str, str] = {}
        self._stirred: dict[str, None] = {}
        """Where something has changed since turns were last given, in that order."""
        self._asleep: dict[str, None] = {}
        """Those of them that do not know yet that what Slurm refused may be possible now."""
        self._opens: Ranking[str, float] = Ranking()
        self._starved: Ranking[str, int] = Ranking()
        """Where an owner would go if each might have more in Slurm's queue, by how many it has there."""
        self._more = False
        """Whether others have their turn now."""

    def __getitem__(self, partition: str) -> SubmitQueue:
        if partition not in self._by_partition:
            self._by_partition[partition] = SubmitQueue(self._size, self._rest, self._places, partition)
        return self._by_partition[partition]

    def follow(self, partition: str, record: Placeholder, now: float) -> None:
        """Takes note of the state and the partition that a placeholder is in now."""
        uid = record.uid
        if self._of.get(uid, partition) != partition:
            self.forget(uid)
        self._of[uid] = partition
        window = self[partition]
        news = window.follow(record, now)
        if news and (window.unsettled or self._starved or self._places.anybody_waits):
            self._stirred[partition] = None

    def forget(self, uid: str) -> None:
        """Takes out a placeholder that is over."""
        partition = self._of.pop(uid, None)
        if partition is not None:
            self[partition].forget(uid)
            self._stirred[partition] = None

    def wake(self, max_job_count: int) -> None:
        """What Slurm refused may be possible now; its MaxJobCount is this."""
        self._places.limit(max_job_count)
        self._asleep = dict.fromkeys(self._by_partition)
        self._stirred |= self._asleep

    def why(self, uid: str) -> ConditionReason:
        """Returns why one that waits has no turn yet."""
        partition = self._of.get(uid)
        return IN_LINE if partition is None else self[partition].why(uid)

    def stirred(self, now: float) -> bool:
        """Tells whether it may be anybody's turn: after most events it is nobody's."""
        return bool(self._stirred) or self.opens <= now

    def turns(self, now: float) -> Iterator[tuple[str, str]]:
        """Yields the partitions and uids whose turn it is: some of them, where there are very many, and
        the others as soon as it is asked again."""
        self._more = True
        self._stir_due(now)
        for given, turn in enumerate(self._all_turns(now), 1):
            yield turn
            if given == AT_ONCE:
                self._stirred.pop(turn[0], None)
                self._stirred[turn[0]] = None  # behind the other partitions
                return

    def _stir_due(self, now: float) -> None:
        for _ in range(AT_ONCE):
            first = self._opens.first()
            if first is None or first[0] > now:
                return
            self._opens.drop(first[1])
            self._stirred[first[1]] = None

    def _all_turns(self, now: float) -> Iterator[tuple[str, str]]:
        for _ in range(AT_ONCE):
            partition = self._next()
            if partition is None:
                self._more = False
                return
            self._stirred.setdefault(partition)
            window = self[partition]
            if partition in self._asleep:
                del self._asleep[partition]
                window.wake()
            for uid in window.turns(now):
                yield partition, uid
            self._note(partition, window, now)

    def _next(self) -> str | None:
        """Returns a partition in which a Pod may have a turn. Those where Pods wait for a place in
        Slurm's queue come first."""
        if (admitted := self._places.admitted()) is not None:
            user, partition = admitted
            self[partition].admit(user)
            return partition
        starved = self._starved.first()
        if starved is not None and starved[0] < self._places.share:
            self._starved.drop(starved[1])
            return starved[1]
        return next(iter(self._stirred), None)

    def _note(self, partition: str, window: SubmitQueue, now: float) -> None:
        """Taking turns stirs a window too, but only what it said last counts."""
        self._stirred.pop(partition, None)
        self._opens.drop(partition)
        due = min(window.opens, window.over)
        if window.over <= now:
            del self._by_partition[partition]
        elif due < inf:
            self._opens.put(partition, due)
        self._starved.drop(partition)
        if (in_slurm := window.starved) is not None:
            self._starved.put(partition, in_slurm)

    @property
    def opens(self) -> float:
        """When there will be a turn though nothing happens; infinity where there will be none."""
        first = self._opens.first()
        return 0.0 if self._more else first[0] if first else inf
