"""Whose turn it is: a bounded number of placeholders waits in each partition, the rest waits gated.

A short queue keeps Slurm's scheduler fast. But it is Slurm that decides whose job comes first: so every
owner (`line.Owner`) has jobs in its queue, and the owner with the fewest is next. The window holds
`size` placeholders that compete for nodes; those that wait for their owner's own limit
(`pending_reasons`) count against that owner alone. Where the window is full an owner that has less than
its share gets a place all the same, beyond the window: one that comes last waits for nobody.

Slurm's queue is bounded as well (MaxJobCount), for all partitions together. As it fills up, an owner may
have in a partition at most a quarter as many places as are left, and a Slurm user's places are counted
in all partitions (`places`).

Within an owner turns go by the Pod's priority, then by age. What Slurm refuses for now goes back in
line, without a place in the window (`line`). The fast path is open while nothing of ours competes for
the partition: an immediate job must not overtake.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from enum import StrEnum, auto
from math import inf

from extender.jobs.pending_reasons import waits_for_its_owner
from extender.record.condition_reason import ConditionReason
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.turns.line import Line, Owner, Queue, kind_of, turn_of
from extender.turns.places import Places, User
from extender.turns.ranking import Ranking
from wellknown.names import Reason

_OWN = "Pods of its Slurm user (of its namespace, where it has no user), account, QOS and reservation"
IN_LINE = ConditionReason(
    Reason.WAITING_FOR_SUBMIT_SLOT,
    f"waits in line: as many {_OWN} wait in Slurm's queue as may at a time",
    normal=True,
)
NO_PLACE = ConditionReason(
    Reason.WAITING_FOR_SUBMIT_SLOT,
    f"waits in line: Slurm's queue fills up, and its MaxJobCount leaves no more places for {_OWN}",
    normal=True,
)
_FEW = 10


class _Stand(StrEnum):
    """Where a placeholder stands with Slurm."""

    ASKED = auto()
    """It is asked for on the fast path."""
    QUEUED = auto()
    """It competes for nodes, or will."""
    HELD_UP = auto()
    """It waits for a limit of its owner."""


def _owner(record: Placeholder) -> Owner:
    return Owner.of(record.workload.namespace, record.request.job)


def _stand(record: Placeholder) -> _Stand | None:
    """Returns None where Slurm's queue does not have it."""
    match record.state:
        case State.SUBMITTING if not record.in_line:
            return _Stand.ASKED if record.job.asked.immediate else _Stand.QUEUED
        case State.QUEUED:
            cause = record.cause
            held_up = cause is not None and waits_for_its_owner(cause.reason)
            return _Stand.HELD_UP if held_up else _Stand.QUEUED
    return None


class SubmitQueue:
    """One partition's queue of ours: which placeholders wait for a turn, and which have taken one."""

    def __init__(self, size: int, rest: float, places: Places, partition: str = "") -> None:
        self._size = size
        self._rest = rest
        self._places = places
        self._partition = partition
        self._queues: dict[Owner, Queue] = {}
        self._ready: dict[User, Ranking[Queue, tuple[int, int]]] = {}
        """The owners with somebody who may go, by their Slurm user: first those with the fewest in
        Slurm's queue, then those that were served longest ago."""
        self._order: Ranking[User, tuple[int, int]] = Ranking()
        """The users, by their first owners, without those that wait for a place (`Places`)."""
        self._lines: dict[str, Line] = {}
        """The line of each that waits, or is on its way to Slurm."""
        self._resting: Ranking[Queue, float] = Ranking()
        """The owners with a line that rests, by when one of them opens."""
        self._standing: dict[str, tuple[Queue, _Stand]] = {}
        self._stands: Counter[_Stand] = Counter()
        self._served = 0
        self._fast_path_rests_until = 0.0

    def follow(self, record: Placeholder, now: float) -> bool:
        """Takes note of the state that a placeholder of this partition is in now. Tells whether that is
        news to those that wait."""
        uid, state = record.uid, record.state
        news = self._takes_its_stand(record)
        if record.in_line:
            return self._wait(record, now) or news
        line = self._lines.get(uid)
        if line is None:
            return news
        if state is State.SUBMITTING:
            if uid in line.waiting:
                line.waiting.drop(uid)
                self._list(line)
            return news
        self._leave(uid, taken=state in (State.QUEUED, State.ALLOCATED))
        return True

    def forget(self, uid: str) -> None:
        """Takes a placeholder out that has gone to another partition, or is over."""
        self._leave(uid)
        if uid in self._standing:
            self._move(uid, *self._standing[uid], None)

    def wake(self) -> None:
        """What Slurm refused may be possible now."""
        for queue in self._queues.values():
            queue.wake()
            self._rank(queue)

    def had_no_room(self, now: float) -> None:
        """An immediate allocation was refused: the fast path rests."""
        self._fast_path_rests_until = now + self._rest

    def fast(self, now: float) -> bool:
        """Tells whether an immediate allocation would overtake nobody and is worth asking for."""
        return not self._stands[_Stand.QUEUED] and now >= self._fast_path_rests_until

    def turns(self, now: float) -> Iterator[str]:
        """Yields the uids whose turn it is; each has left the line when the next is asked for."""
        while (queue := self._next(now)) is not None:
            _, line = queue.heads.top
            _, uid = line.waiting.top
            line.goes(uid, now)
            self._served += 1
            queue.served = self._served
            self._list(line)
            yield uid

    def _next(self, now: float) -> Queue | None:
        """Returns the owner whose turn it is."""
        self._open(now)
        while (first := self._order.first()) is not None:
            (in_slurm, _), user = first
            if in_slurm >= min(self._own, self._places.share):
                return None
            if self._places.open_to(user):
                return self._ready[user].top[1]
            self._order.drop(user)
            self._places.wait(user, self._partition)
        return None

    def admit(self, user: User) -> None:
        """There is a place for a user that waited for one."""
        if (ready := self._ready.get(user)) is not None:
            self._order.put(user, ready.top[0])

    def why(self, uid: str) -> ConditionReason:
        """Returns why one that waits has no turn yet."""
        line = self._lines.get(uid)
        if line is not None and line.cause is not None:
            return line.cause
        if line is None or line.queue.in_slurm >= self._own:
            return IN_LINE
        has_place = line.queue.in_slurm < self._places.share
        return IN_LINE if has_place and self._places.open_to(line.queue.owner.user_id) else NO_PLACE

    @property
    def opens(self) -> float:
        """When there will be a turn though nothing happens; infinity where there will be none."""
        first = self._resting.first()
        return first[0] if first else inf

    @property
    def unsettled(self) -> bool:
        """Tells whether there is anything to do when it stirs: mostly nobody waits."""
        return bool(self._ready or self._resting) or not self._queues

    @property
    def over(self) -> float:
        """When there is nothing left to remember; infinity while there is anybody in it."""
        return inf if self._queues else self._fast_path_rests_until

    @property
    def starved(self) -> int | None:
        """Returns how many the next owner has in Slurm's queue, where it would go if owners might have
        more there (`Places.share`)."""
        first = self._order.first()
        in_slurm: int = first[0][0] if first is not None else self._own
        return in_slurm if self._places.share <= in_slurm < self._own else None

    @property
    def _own(self) -> int:
        """How many an owner may have in Slurm's queue, as far as this partition is concerned."""
        if self._stands[_Stand.QUEUED] + self._stands[_Stand.ASKED] < self._size:
            return self._size
        return max(1, self._size // len(self._queues))

    # In line

    def _wait(self, record: Placeholder, now: float) -> bool:
        uid = record.uid
        owner, kind = _owner(record), kind_of(record)
        line = self._lines.get(uid)
        waited = line is not None and uid in line.waiting
        if line is None or line.kind != kind or line.queue.owner != owner:
            self._leave(uid)
            line = self._join(uid, owner, kind)
        elif waited:
            return False
        line.waiting.put(uid, turn_of(record.lead))
        if record.state is State.SUBMITTING and not waited:
            line.refused(record.cause, now)
            line.queue.refused()
        self._list(line)
        return True

    def _join(self, uid: str, owner: Owner, kind: Hashable) -> Line:
        queue = self._queue(owner)
        line = queue.lines.get(kind)
        if line is None:
            line = queue.lines[kind] = Line(queue, kind, self._rest)
        line.members += 1
        self._lines[uid] = line
        return line

    def _queue(self, owner: Owner) -> Queue:
        if owner not in self._queues:
            self._served += 1
            self._queues[owner] = Queue(owner, self._rest, self._served)
        return self._queues[owner]

    def _leave(self, uid: str, *, taken: bool = False) -> None:
        line = self._lines.pop(uid, None)
        if line is None:
            return
        line.members -= 1
        line.waiting.drop(uid)
        if taken:
            line.taken()
        if not line.members:
            line.opens()
            del line.queue.lines[line.kind]
        self._list(line)
        if taken:
            line.queue.taken()
            self._rank(line.queue)

    def _open(self, now: float) -> None:
        """Some at a time: there may be very many."""
        for _ in range(_FEW):
            first = self._resting.first()
            if first is None or first[0] > now:
                return
            self._list(first[1].open_next(now))

    def _list(self, line: Line) -> None:
        """Keeps a line where it belongs after it has changed: among those that rest, or by who is first
        in it."""
        queue, first = line.queue, line.waiting.first()
        queue.resting.put(line, line.rests_until)
        queue.heads.put(line, first[0] if first and line.rests_until is None else None)
        self._rank(queue)

    def _rank(self, queue: Queue) -> None:
        self._rank_user(queue)
        self._resting.put(queue, queue.opens if queue.resting else None)
        if queue.empty:
            self._queues.pop(queue.owner, None)

    def _rank_user(self, queue: Queue) -> None:
        user = queue.owner.user_id
        ready = self._ready.get(user)
        if ready is None:
            if not queue.heads:  # as mostly, where Slurm takes what it is asked for
                return
            ready = self._ready[user] = Ranking()
        ready.put(queue, (queue.in_slurm, queue.served) if queue.heads else None)
        if not ready:
            del self._ready[user]
            self._order.drop(user)
            self._places.leave(user, self._partition)
        elif not self._places.waits(user, self._partition):
            self._order.put(user, ready.top[0])

    # In Slurm's queue

    def _takes_its_stand(self, record: Placeholder) -> bool:
        """It counts for the owner that its job has, whatever its Pod says later."""
        uid, stand = record.uid, _stand(record)
        queue, before = self._standing.get(uid, (None, None))
        if stand is before:
            return False
        self._move(uid, queue or self._queue(_owner(record)), before, stand)
        return True

    def _move(self, uid: str, queue: Queue, before: _Stand | None, after: _Stand | None) -> None:
        if before is not None:
            del self._standing[uid]
            self._stands[before] -= 1
        if after is not None:
            self._standing[uid] = queue, after
            self._stands[after] += 1
        more = (after is not None) - (before is not None)
        queue.in_slurm += more
        self._places.take(queue.owner.user_id, more)
        self._rank(queue)
