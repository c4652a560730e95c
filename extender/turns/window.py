"""The order in which Pods get turns to request their jobs. In each partition, a limited number of
placeholders waits in Slurm's queue. The other Pods keep their scheduling gate, and wait in line for
their turns.

A short queue keeps Slurm's scheduler fast. Slurm decides which job comes first. Therefore the extender
keeps jobs of every owner (`Owner`) in Slurm's queue. The owner with the fewest jobs in the queue gets
the next turn. Among this owner's Pods, the Pod with the highest priority goes first, then the oldest
Pod. Three limits may delay an owner:

- The window of a partition has `size` places for placeholders that compete for nodes. A share is `size`
  divided by the number of owners. If the window is full, an owner with less than a share still gets
  places. A job that waits for a limit of its owner (`pending_reasons`) counts against this owner alone.
- All partitions share the places that MaxJobCount leaves (`Places`). In one partition, an owner may have
  at most a quarter as many places as there are free places.
- A Slurm user has a bounded number of places in all partitions together.

If Slurm refuses a Pod's job for now, the Pod waits in line again, and its place becomes free. The
owner's Pods with an equal request form a class, and Slurm would refuse all of them. Therefore the class
pauses (`Backoff`). After the pause, the class lets through one Pod at a time, and more Pods while Slurm
accepts the requests. Other classes continue. Because an owner may have any number of classes, only a few
paused classes are tried again at a time.

On the fast path, the extender requests an immediate job: Slurm grants nodes at once, or rejects the job.
An immediate job must not overtake another job. Therefore the fast path is open only while no placeholder
of the extender competes for the partition.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import NamedTuple

from extender.explain.cause import Cause, Kind
from extender.explain.pending_reasons import waits_for_its_owner
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.turns.backoff import Backoff
from extender.turns.equivalence import Owner, Turn, kind_of, turn_of
from extender.turns.places import Key, Places
from extender.turns.ranking import Ranking
from wellknown.pauses import Pauses

IN_LINE = Cause.of(Kind.IN_LINE)
NO_PLACE = Cause.of(Kind.NO_PLACE)
_MAX_STEPS = 200
"""Number of steps in `Windows.turns` before the ledger handles other events."""
_LONGEST = 15
"""Longest pause of a class, as a multiple of the shortest pause."""
_TRIES = 10
"""Number of paused classes of an owner that are tried again within the shortest pause."""


class InLine(NamedTuple):
    """Position of a Pod in the line of Pods that wait for their turns in a partition."""

    ahead: int
    """Number of Pods that get their turns before this Pod, if nothing changes. The number does not
    consider pauses of classes and limits of owners."""
    of_its_owner: int
    """Number of Pods among `ahead` with the same owner as this Pod."""
    waiting: int
    """Number of all Pods in the line."""


class _Stand(Enum):
    """How a placeholder counts in Slurm's queue."""

    ASKED = auto()
    """The extender requests the job on the fast path."""
    COMPETES = auto()
    """The job waits for nodes, or will wait for nodes after its submission."""
    HELD_UP = auto()
    """The job waits for a limit of its owner."""


def _owner(record: Placeholder) -> Owner:
    return Owner.of(record.workload.namespace, record.request.job)


def _stand_of(record: Placeholder) -> _Stand | None:
    """Returns how a placeholder counts in Slurm's queue; None if the placeholder is not in the queue."""
    match record.state:
        case State.SUBMITTING if not record.in_line:
            return _Stand.ASKED if record.job.asked.immediate else _Stand.COMPETES
        case State.QUEUED:
            cause = record.cause
            held_up = cause is not None and waits_for_its_owner(cause.reason)
            return _Stand.HELD_UP if held_up else _Stand.COMPETES
    return None


@dataclass(eq=False, slots=True)
class _Window:
    """The owners in one partition."""

    partition: str
    size: int
    queues: dict[Owner, "_Queue"] = field(default_factory=dict)
    ready: Ranking["_Queue", Key] = field(default_factory=Ranking)
    """Owners with a Pod that may have a turn, except owners that wait for a place (`Places`)."""
    stands: Counter[_Stand] = field(default_factory=Counter)

    @property
    def most(self) -> int:
        """Returns the number of places that one owner may have in this window now."""
        if self.stands[_Stand.COMPETES] + self.stands[_Stand.ASKED] < self.size:
            return self.size
        return max(1, self.size // len(self.queues))


@dataclass(eq=False, slots=True)
class _Queue:
    """One owner's Pods in one partition."""

    window: _Window
    owner: Owner
    served: int
    """Serial number of the owner's last turn. Before the first turn, the serial number of the owner's
    arrival."""
    classes: dict[Hashable, "_Class"] = field(default_factory=dict)
    open: Ranking["_Class", Turn] = field(default_factory=Ranking)
    """Classes with a Pod that may have a turn, in the order of their first Pods."""
    paused: Ranking["_Class", float] = field(default_factory=Ranking)
    """Paused classes, in the order in which their pauses end."""
    in_slurm: int = 0
    """Number of the owner's placeholders that are in Slurm's queue or are being submitted."""
    may_try: int = 0
    """Number of paused classes that may be tried now, before their pauses end."""
    tried_until: float = 0.0

    @property
    def key(self) -> Key | None:
        """Returns the key that orders the owners; None if no Pod of this owner may have a turn."""
        return (self.in_slurm, self.served) if self.open else None

    @property
    def waiting(self) -> int:
        """Returns the number of Pods in line."""
        return sum(len(each.waiting) for each in self.classes.values())

    def turns_before(self, other: "_Queue", number: int) -> int:
        """Returns how many turns this owner gets before turn `number` (counted from 0) of another owner.
        The owner with fewer placeholders in Slurm catches up first. When both have equally many
        placeholders, the owner that had more placeholders is next, because its last turn is longer
        ago."""
        first = (-self.in_slurm, self.served) < (-other.in_slurm, other.served)
        return max(0, min(self.waiting, other.in_slurm + number - self.in_slurm + first))

    @property
    def opens(self) -> float | None:
        """Returns the time of the next try of a paused class; None if no class is paused."""
        first = self.paused.first()
        if first is None:
            return None
        return 0.0 if self.may_try else max(first[0], self.tried_until)


@dataclass(eq=False, slots=True)
class _Class:
    """Pods of one owner with equal requests."""

    queue: _Queue
    kind: Hashable
    backoff: Backoff
    waiting: Ranking[str, Turn] = field(default_factory=Ranking)
    members: int = 0
    """Number of Pods of the class that wait or are being submitted."""
    cause: Cause | None = None
    """Why Slurm refused the last Pod; None while Slurm accepts the Pods."""
    careful: bool = False
    """True after Slurm has refused a Pod. Then each turn of a Pod begins a pause. Each Pod that Slurm
    accepts allows tries of two paused classes of the owner before their pauses end."""


class Windows:
    """The windows of all partitions. `shortest` is the first pause after a refusal, in seconds."""

    def __init__(self, size: int, shortest: float, max_job_count: int) -> None:
        self.places: Places[_Queue] = Places(max_job_count)
        self._size = size
        self._shortest = shortest
        self._windows: dict[str, _Window] = {}
        """The windows with owners."""
        self._order: Ranking[_Window, Key] = Ranking()
        """Windows with a place for their first owner, in the order of these owners' keys."""
        self._paused: Ranking[_Queue, float] = Ranking()
        """Owners with paused classes, in the order of their next tries."""
        self._woken: dict[_Queue, None] = {}
        """Owners with paused classes that may try again after a change in Slurm, and have not tried
        yet."""
        self._class_of: dict[str, _Class] = {}
        self._in_slurm: dict[str, tuple[_Queue, _Stand]] = {}
        """The placeholders in Slurm's queue. A placeholder counts for the owner of its job, even if the
        Pod names another owner later."""
        self._fast_from: dict[str, float] = {}
        """Partitions that had no room for an immediate job, each with the time at which the fast path
        opens again."""
        self._served = 0

    def __len__(self) -> int:
        return len(self._windows)

    # News

    def follow(self, partition: str, record: Placeholder, now: float) -> None:
        """Notes the new state and the partition of a placeholder."""
        uid = record.uid
        if self._partition_of(uid) not in (None, partition):
            self.forget(uid)
        queue, before = self._in_slurm.get(uid, (None, None))
        stand = _stand_of(record)
        if stand is not before:
            self._move(uid, queue or self._queue(partition, _owner(record)), before, stand)
        known = self._class_of.get(uid)
        if record.in_line:
            self._wait(known, partition, record, now)
        elif known is not None and record.state is not State.SUBMITTING:
            self._leave(uid, taken=record.state in (State.QUEUED, State.ALLOCATED))
        elif known is not None and uid in known.waiting:
            known.waiting.drop(uid)
            self._list(known)

    def forget(self, uid: str) -> None:
        """Removes a placeholder."""
        self._leave(uid)
        if uid in self._in_slurm:
            self._move(uid, *self._in_slurm[uid], None)

    def wake(self, max_job_count: int) -> None:
        """Lets refused Pods try again after a change in Slurm. `max_job_count` is Slurm's
        MaxJobCount."""
        self.places.limit(max_job_count)
        self._woken |= dict.fromkeys(self._paused)

    def had_no_room(self, partition: str, now: float) -> None:
        """Closes the fast path for a while after Slurm had no room for an immediate job."""
        self._fast_from = {name: until for name, until in self._fast_from.items() if until > now}
        self._fast_from[partition] = now + self._shortest

    # Questions

    def fast(self, partition: str, now: float) -> bool:
        """Returns True if an immediate job would overtake no other job, and Slurm may have room for the
        job."""
        window = self._windows.get(partition)
        overtakes = window is not None and window.stands[_Stand.COMPETES]
        return not overtakes and now >= self._fast_from.get(partition, 0.0)

    def why(self, uid: str) -> Cause:
        """Returns why a waiting Pod has no turn."""
        known = self._class_of.get(uid)
        if known is None:
            return IN_LINE
        if known.cause is not None:
            return known.cause
        queue = known.queue
        if queue.in_slurm >= queue.window.most:
            return IN_LINE
        has_place = queue.in_slurm < self.places.share and self.places.open_to(queue.owner.user_id)
        return IN_LINE if has_place else NO_PLACE

    def place_in_line(self, uid: str) -> InLine | None:
        """Returns the position of a Pod in line; None for a Pod that does not wait in line. The cost
        grows with the owner's Pods and with the partition's classes."""
        known = self._class_of.get(uid)
        turn = None if known is None else known.waiting.key(uid)
        if known is None or turn is None:
            return None
        own, queues = known.queue, known.queue.window.queues.values()
        own_ahead = sum(each.waiting.number_before(turn) for each in own.classes.values())
        others = sum(each.turns_before(own, own_ahead) for each in queues if each is not own)
        return InLine(own_ahead + others, own_ahead, sum(each.waiting for each in queues))

    @property
    def opens(self) -> float:
        """Returns the time of the next turn, if no event comes earlier; infinity if there is no next
        turn."""
        if self._woken or self._next() is not None or self._admitted() is not None:
            return 0.0
        first = self._paused.first()
        return first[0] if first else inf

    # Turns

    def turns(self, now: float) -> Iterator[tuple[str, str]]:
        """Yields the partition and the uid of each Pod that has its turn now, up to a limit. If `opens`
        is still not later than `now` after the last Pod, the caller calls this method again after other
        events."""
        for _ in range(_MAX_STEPS):
            paused = self._paused.first()
            if self._woken:
                woken, _ = self._woken.popitem()
                self._try_more(woken, _TRIES)
            elif paused is not None and paused[0] <= now:
                self._try_again(paused[1], now)
            elif (admitted := self._admitted()) is not None:
                self.places.wait(admitted.owner.user_id, admitted, None)
                self._rank(admitted)
            elif (queue := self._next()) is None:
                return
            elif self.places.open_to(queue.owner.user_id):
                yield queue.window.partition, self._take_turn(queue, now)
            else:
                self.places.wait(queue.owner.user_id, queue, queue.key)
                self._rank(queue)

    def _next(self) -> _Queue | None:
        """Returns the owner with the next turn, among all windows: the owner with the fewest
        placeholders in Slurm."""
        first = self._order.first()
        if first is None or first[0][0] >= self.places.share:
            return None
        return first[1].ready.top[1]

    def _admitted(self) -> _Queue | None:
        """Returns an owner that has waited for a place, if the owner may have a place now and comes
        before all other owners."""
        waiting, first = self.places.admitted(), self._order.first()
        if waiting is None or waiting[0][0] >= self.places.share:
            return None
        return waiting[1] if first is None or waiting[0] < first[0] else None

    def _try_more(self, queue: _Queue, more: int) -> None:
        queue.may_try = min(_TRIES, queue.may_try + more) if queue.paused else 0
        self._paused.put(queue, queue.opens)

    def _try_again(self, queue: _Queue, now: float) -> None:
        if queue.may_try:
            queue.may_try -= 1
        else:
            queue.tried_until = now + self._shortest / _TRIES
        _, tried = queue.paused.top
        tried.backoff.due = None
        self._list(tried)

    def _take_turn(self, queue: _Queue, now: float) -> str:
        _, going = queue.open.top
        _, uid = going.waiting.top
        going.waiting.drop(uid)
        if going.careful:  # if Slurm does not answer, another Pod follows after the pause
            going.backoff.pause(now)
        self._served += 1
        queue.served = self._served
        self._list(going)
        return uid

    # In line

    def _wait(self, known: _Class | None, partition: str, record: Placeholder, now: float) -> None:
        uid, owner, kind = record.uid, _owner(record), kind_of(record)
        waited = known is not None and uid in known.waiting
        if known is None or known.kind != kind or known.queue.owner != owner:
            self._leave(uid)
            known = self._join(uid, self._queue(partition, owner), kind)
        elif waited:
            return
        known.waiting.put(uid, turn_of(record.lead))
        if record.state is State.SUBMITTING and not waited:
            known.cause, known.careful, known.queue.may_try = record.cause, True, 0
            known.backoff.pause(now)
            known.backoff.refusals += 1
        self._list(known)

    def _join(self, uid: str, queue: _Queue, kind: Hashable) -> _Class:
        joined = queue.classes.get(kind)
        if joined is None:
            backoff = Backoff(Pauses(self._shortest, _LONGEST * self._shortest))
            joined = queue.classes[kind] = _Class(queue, kind, backoff)
        joined.members += 1
        self._class_of[uid] = joined
        return joined

    def _leave(self, uid: str, *, taken: bool = False) -> None:
        left = self._class_of.pop(uid, None)
        if left is None:
            return
        left.members -= 1
        left.waiting.drop(uid)
        if taken:
            left.cause, left.backoff.refusals = None, 0
        if not left.members:
            left.backoff.due = None
            del left.queue.classes[left.kind]
        self._list(left)
        if taken:
            self._try_more(left.queue, 2)

    # Slurm's queue

    def _move(self, uid: str, queue: _Queue, before: _Stand | None, after: _Stand | None) -> None:
        if before is not None:
            del self._in_slurm[uid]
            queue.window.stands[before] -= 1
        if after is not None:
            self._in_slurm[uid] = queue, after
            queue.window.stands[after] += 1
        more = (after is not None) - (before is not None)
        queue.in_slurm += more
        self.places.take(queue.owner.user_id, more)
        self._rank(queue)

    # The order

    def _partition_of(self, uid: str) -> str | None:
        known = self._class_of.get(uid)
        queue = known.queue if known is not None else self._in_slurm.get(uid, (None,))[0]
        return None if queue is None else queue.window.partition

    def _queue(self, partition: str, owner: Owner) -> _Queue:
        window = self._windows.get(partition)
        if window is None:
            window = self._windows[partition] = _Window(partition, self._size)
        if owner not in window.queues:
            self._served += 1
            window.queues[owner] = _Queue(window, owner, self._served)
        return window.queues[owner]

    def _list(self, changed: _Class) -> None:
        """Updates the rank of a class after a change."""
        queue, first, due = changed.queue, changed.waiting.first(), changed.backoff.due
        queue.paused.put(changed, due)
        queue.open.put(changed, first[0] if first and due is None else None)
        self._rank(queue)

    def _rank(self, queue: _Queue) -> None:
        """Updates the ranks of an owner and of its window after a change."""
        window, user, key = queue.window, queue.owner.user_id, queue.key
        self._paused.put(queue, queue.opens)
        if self.places.waits(user, queue):
            self.places.wait(user, queue, key)
            key = None
        window.ready.put(queue, key)
        if not (queue.classes or queue.in_slurm):
            window.queues.pop(queue.owner, None)
            self._woken.pop(queue, None)
        if not window.queues:
            self._windows.pop(window.partition, None)
        first = window.ready.first()
        may_go = first is not None and first[0][0] < window.most
        self._order.put(window, first[0] if first is not None and may_go else None)
