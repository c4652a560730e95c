"""Whose turn it is: a bounded number of placeholders waits in each partition, the rest waits gated.

Slurm's own queue is bounded (MaxJobCount), and a short queue keeps its scheduler fast. Turns go by the
Pod's priority, then by age. The fast path is open while nothing of ours waits in the partition: an
immediate job must not overtake.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator

from extender.placement.placeholder import Placeholder, State
from extender.placement.workload import Pod

_Turn = tuple[int, str, str]


def _turn(pod: Pod) -> _Turn:
    return (-pod.priority, pod.created, pod.uid)


class Window:
    """One partition's queue of ours: who waits for a turn, and who has taken one."""

    def __init__(self, size: int, rest: float) -> None:
        self._size = size
        self._rest = rest
        self._turns: list[_Turn] = []
        self._waiting: set[str] = set()
        self._queued: set[str] = set()
        self._asking: set[str] = set()
        self._resting_until = 0.0

    def follow(self, placeholder: Placeholder) -> None:
        """Takes note of the state that a placeholder of this partition is in now."""
        uid, state = placeholder.pod.uid, placeholder.state
        if state is State.SEEN and uid not in self._waiting:
            self._waiting.add(uid)
            heapq.heappush(self._turns, _turn(placeholder.pod))
        elif state is not State.SEEN:
            self._waiting.discard(uid)
        asking = state is State.SUBMITTING and placeholder.immediate
        queued = state is State.QUEUED or (state is State.SUBMITTING and not asking)
        _put(self._asking, uid, asking)
        _put(self._queued, uid, queued)

    def forget(self, uid: str) -> None:
        """Takes a placeholder out that has gone to another partition, or is over."""
        for members in (self._waiting, self._queued, self._asking):
            members.discard(uid)

    def had_no_room(self, now: float) -> None:
        """An immediate allocation was refused: the fast path rests."""
        self._resting_until = now + self._rest

    def fast(self, now: float) -> bool:
        """Tells whether an immediate allocation would overtake nobody and is worth asking for."""
        return not self._queued and now >= self._resting_until

    def turns(self) -> Iterator[str]:
        """Yields the uids whose turn it is; each has left the line when the next is asked for."""
        while self._turns and len(self._queued) + len(self._asking) < self._size:
            uid = heapq.heappop(self._turns)[2]
            if uid in self._waiting:
                self._waiting.discard(uid)
                yield uid


def _put(members: set[str], uid: str, belongs: bool) -> None:
    if belongs:
        members.add(uid)
    else:
        members.discard(uid)


class Windows:
    """The windows of all partitions, made as they are needed; a placeholder is in one of them."""

    def __init__(self, size: int, rest: float) -> None:
        self._by_partition: dict[str, Window] = defaultdict(lambda: Window(size, rest))
        self._of: dict[str, str] = {}

    def __getitem__(self, partition: str) -> Window:
        return self._by_partition[partition]

    def __iter__(self) -> Iterator[tuple[str, Window]]:
        return iter(tuple(self._by_partition.items()))

    def follow(self, partition: str, placeholder: Placeholder) -> None:
        """Takes note of the state and the partition that a placeholder is in now."""
        uid = placeholder.pod.uid
        before = self._of.get(uid, partition)
        if before != partition:
            self._by_partition[before].forget(uid)
        self._of[uid] = partition
        self._by_partition[partition].follow(placeholder)

    def forget(self, uid: str) -> None:
        """Takes out a placeholder that is over."""
        self._by_partition[self._of.pop(uid, "")].forget(uid)
