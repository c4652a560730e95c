"""Whose turn it is: a bounded number of placeholders waits in each partition, the rest waits gated.

Slurm's own queue is bounded (MaxJobCount), and a short queue keeps its scheduler fast. Turns go by the
Pod's priority, then by age. The fast path is open while nothing of ours waits in the partition: an
immediate job must not overtake.

What Slurm refuses for now (a limit on jobs, a closed partition) goes back in line, without a place in
the window. It would refuse all that are alike: their line rests, and then one is let through after the
other, more at a time as they succeed. Lines of others go on meanwhile.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterator
from math import inf

from extender.placement.placeholder import Cause, Placeholder, State
from extender.placement.workload import Pod

_Turn = tuple[int, str, str]
_LONGEST_RESTS = 15  # a line that is refused again and again rests so many times as long as at first
_MANY = 1 << 30
_FEW = 64


def _turn(pod: Pod) -> _Turn:
    return (-pod.priority, pod.created, pod.uid)


def _kind(placeholder: Placeholder) -> Hashable:
    """Returns what Slurm's limits, and the nodes that are open to a Pod, depend on."""
    request = placeholder.pod.request
    job = request.job
    owner = job.account, job.qos, job.user_id, job.group_id, job.reservation
    size = job.cpus, job.memory_mb, job.gres, job.nodes, job.time_limit_minutes, job.shared
    nodes = job.required_nodes, job.excluded_nodes, job.constraints, request.constraints.signature
    return owner, size, nodes, placeholder.avoid, placeholder.offered


class _Line:
    """Those that are alike: who waits for a turn, and how many may go."""

    def __init__(self, kind: Hashable, rest: float) -> None:
        self.kind = kind
        self._rest = rest
        self.turns: list[_Turn] = []
        self.members = 0
        """Those who wait, and those who are on their way to Slurm."""
        self.cause: Cause | None = None
        """Why Slurm refused the last one; None while it takes them."""
        self._refused_since = 0.0
        self._may_go = _MANY
        self._resting_until = 0.0

    def refused(self, cause: Cause | None, now: float) -> None:
        """Slurm takes none of these for now: one at a time finds out whether that has changed."""
        if self.cause is None:
            self._refused_since = now
        self.cause, self._may_go = cause, 0
        self._pause(now)

    def taken(self) -> None:
        """Slurm took one: two more may follow."""
        self.cause, self._may_go = None, min(_MANY, self._may_go + 2)

    def goes(self, now: float) -> None:
        """One leaves for Slurm. Its answer may never come: the line opens again without it."""
        self._may_go = max(0, self._may_go - 1)
        if not self._may_go:
            self._pause(now)

    def wake(self, now: float) -> None:
        """What it was refused for may be over."""
        self._resting_until = min(self._resting_until, now)

    @property
    def opens(self) -> float:
        """When the next may go."""
        return 0.0 if self._may_go else self._resting_until

    def _pause(self, now: float) -> None:
        """Short at first, then longer and longer."""
        longer = (now - self._refused_since) / 4 if self.cause is not None else 0.0
        self._resting_until = now + min(max(self._rest, longer), _LONGEST_RESTS * self._rest)


class Window:
    """One partition's queue of ours: who waits for a turn, and who has taken one."""

    def __init__(self, size: int, rest: float) -> None:
        self._size = size
        self._rest = rest
        self._lines: dict[Hashable, _Line] = {}
        self._kinds: dict[str, Hashable] = {}
        """The line of each that waits, or is on its way to Slurm."""
        self._waiting: set[str] = set()
        self._queued: set[str] = set()
        self._asking: set[str] = set()
        self._fast_path_rests_until = 0.0
        self._opens = 0.0

    def follow(self, placeholder: Placeholder, now: float) -> bool:
        """Takes note of the state that a placeholder of this partition is in now. Tells whether that is
        news to whoever waits."""
        uid, state = placeholder.pod.uid, placeholder.state
        submitting = state is State.SUBMITTING and not placeholder.in_line
        news = _put(self._asking, uid, submitting and placeholder.immediate)
        queued = state is State.QUEUED or (submitting and not placeholder.immediate)
        news |= _put(self._queued, uid, queued)
        if placeholder.in_line:
            return self._wait(placeholder, now) or news
        self._waiting.discard(uid)
        if not submitting:
            news |= self._leave(uid, taken=state in (State.QUEUED, State.ALLOCATED))
        return news

    def forget(self, uid: str) -> None:
        """Takes a placeholder out that has gone to another partition, or is over."""
        for members in (self._waiting, self._queued, self._asking):
            members.discard(uid)
        self._leave(uid)

    def wake(self, now: float) -> None:
        """What Slurm refused may be possible now."""
        for line in self._lines.values():
            line.wake(now)
        self._opens = 0.0

    def had_no_room(self, now: float) -> None:
        """An immediate allocation was refused: the fast path rests."""
        self._fast_path_rests_until = now + self._rest

    def fast(self, now: float) -> bool:
        """Tells whether an immediate allocation would overtake nobody and is worth asking for."""
        return not self._queued and now >= self._fast_path_rests_until

    def turns(self, now: float) -> Iterator[str]:
        """Yields the uids whose turn it is; each has left the line when the next is asked for."""
        if not self._has_room or now < self._opens:
            return
        heads = [head for kind in self._lines if (head := self._head(kind, now))]
        heapq.heapify(heads)
        while heads and self._has_room:
            turn, kind = heapq.heappop(heads)
            line = self._lines[kind]
            heapq.heappop(line.turns)
            line.goes(now)
            self._waiting.discard(turn[2])
            yield turn[2]
            if head := self._head(kind, now):
                heapq.heappush(heads, head)
        waiting = (line.opens for line in self._lines.values() if line.turns)
        self._opens = 0.0 if heads else min(waiting, default=inf)

    def refusal(self, uid: str) -> Cause | None:
        """Returns why Slurm takes none for now of those that are like one that waits."""
        kind = self._kinds.get(uid)
        return self._lines[kind].cause if kind is not None else None

    @property
    def opens(self) -> float:
        """When there will be a turn though nothing happens; infinity where there will be none."""
        return self._opens if self._has_room else inf

    @property
    def over(self) -> float:
        """When there is nothing left to remember; infinity while there is anybody in it."""
        anybody = self._lines or self._queued or self._asking
        return inf if anybody else self._fast_path_rests_until

    @property
    def _has_room(self) -> bool:
        return len(self._queued) + len(self._asking) < self._size

    def _wait(self, placeholder: Placeholder, now: float) -> bool:
        uid, kind = placeholder.pod.uid, _kind(placeholder)
        waited = uid in self._waiting
        if waited and self._kinds[uid] == kind:
            return False
        line = self._join(uid, kind)
        self._waiting.add(uid)
        heapq.heappush(line.turns, _turn(placeholder.pod))
        if placeholder.state is State.SUBMITTING and not waited:
            line.refused(placeholder.cause, now)
        self._opens = min(self._opens, line.opens)
        return True

    def _join(self, uid: str, kind: Hashable) -> _Line:
        if self._kinds.get(uid) != kind:
            self._leave(uid)
            line = self._lines.setdefault(kind, _Line(kind, self._rest))
            line.members += 1
            self._kinds[uid] = line.kind  # the same object for all of them: 1 kB each
        return self._lines[kind]

    def _leave(self, uid: str, *, taken: bool = False) -> bool:
        kind = self._kinds.pop(uid, None)
        if kind is None:
            return False
        line = self._lines[kind]
        line.members -= 1
        if taken:
            line.taken()
            self._opens = 0.0
        if not line.members:
            del self._lines[kind]
        elif len(line.turns) > 2 * line.members + _FEW:
            line.turns = [turn for turn in line.turns if self._is_waiting(turn[2], kind)]
            heapq.heapify(line.turns)
        return True

    def _head(self, kind: Hashable, now: float) -> tuple[_Turn, Hashable] | None:
        """Returns the first in a line that may go, rid of those who have left it."""
        line = self._lines.get(kind)
        if line is None or line.opens > now:
            return None
        while line.turns and not self._is_waiting(line.turns[0][2], kind):
            heapq.heappop(line.turns)
        return (line.turns[0], kind) if line.turns else None

    def _is_waiting(self, uid: str, kind: Hashable) -> bool:
        return uid in self._waiting and self._kinds[uid] == kind


def _put(members: set[str], uid: str, belongs: bool) -> bool:
    """Tells whether it was otherwise before."""
    if (uid in members) is belongs:
        return False
    if belongs:
        members.add(uid)
    else:
        members.discard(uid)
    return True


class Windows:
    """The windows of all partitions, while there is anybody in them; a placeholder is in one of them."""

    def __init__(self, size: int, rest: float) -> None:
        self._by_partition: dict[str, Window] = defaultdict(lambda: Window(size, rest))
        self._of: dict[str, str] = {}
        self._stirred: set[str] = set()
        """Where something has changed since turns were last given."""
        self._opens: dict[str, float] = {}

    def __getitem__(self, partition: str) -> Window:
        return self._by_partition[partition]

    def follow(self, partition: str, placeholder: Placeholder, now: float) -> None:
        """Takes note of the state and the partition that a placeholder is in now."""
        uid = placeholder.pod.uid
        if self._of.get(uid, partition) != partition:
            self.forget(uid)
        self._of[uid] = partition
        if self._by_partition[partition].follow(placeholder, now):
            self._stirred.add(partition)

    def forget(self, uid: str) -> None:
        """Takes out a placeholder that is over."""
        partition = self._of.pop(uid, None)
        if partition is not None:
            self._by_partition[partition].forget(uid)
            self._stirred.add(partition)

    def wake(self, now: float) -> None:
        """What Slurm refused may be possible now."""
        for partition, window in self._by_partition.items():
            window.wake(now)
            self._stirred.add(partition)

    def refusal(self, uid: str) -> Cause | None:
        """Returns why Slurm takes none for now of those that are like one that waits."""
        partition = self._of.get(uid)
        return self._by_partition[partition].refusal(uid) if partition is not None else None

    def turns(self, now: float) -> Iterator[tuple[str, str]]:
        """Yields the partitions and uids whose turn it is."""
        self._stirred.update(name for name, opens in self._opens.items() if opens <= now)
        while self._stirred:
            partition = self._stirred.pop()
            window = self._by_partition[partition]
            for uid in window.turns(now):
                yield partition, uid
            self._note(partition, window, now)

    def _note(self, partition: str, window: Window, now: float) -> None:
        """Taking turns stirs a window too, but only what it said last counts."""
        self._stirred.discard(partition)
        self._opens.pop(partition, None)
        due = min(window.opens, window.over)
        if window.over <= now:
            del self._by_partition[partition]
        elif now < due < inf:
            self._opens[partition] = due

    @property
    def opens(self) -> float:
        """When there will be a turn though nothing happens; infinity where there will be none."""
        return min(self._opens.values(), default=inf)
