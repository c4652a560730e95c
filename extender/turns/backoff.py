"""The pauses before the extender repeats a request that Slurm has refused.

Slurm refuses equal requests for the same reason. All Pods with equal requests form a class, and a class
has one backoff. After a pause, the extender repeats the request for one Pod of the class, and each
further pause is twice as long. If Slurm accepts the request, the other Pods of the class follow.

Slurm may refuse a request only for now, because of a limit on jobs or a closed partition. Then the pause
lasts seconds, and the Pod keeps waiting for its turn (`window`). If Slurm rejects the request itself,
the pause lasts minutes (`Retries`). The request is repeated because an administrator may create the
missing association or partition, and Slurm does not report such changes.
"""

import zlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from math import inf

from extender.explain.cause import Due, Step
from extender.record.config import Context
from extender.record.placeholder import Placeholder
from extender.record.states import ASKED, State
from extender.turns.equivalence import request_of
from extender.turns.ranking import Ranking
from wellknown.pauses import Pauses

_SPREAD = 0.25
"""Largest random extension of a pause, as a share of the pause. Without this extension, all requests
that were refused together would be repeated together."""
_TAKEN = frozenset({State.QUEUED, State.ALLOCATED})


@dataclass(eq=False, slots=True)
class Backoff:
    """The pauses of one class of equal requests."""

    pauses: Pauses
    refusals: int = 0
    """Number of consecutive refusals."""
    due: float | None = None
    """Time at which the pause ends; None if there is no pause."""

    def pause(self, now: float, spread: float = 0.0) -> None:
        """Begins a pause. The pause is longer by the share `spread`."""
        self.due = now + self.pauses.after(self.refusals) * (1 + spread)

    def hasten(self, to: float) -> bool:
        """Makes the pause end at the time `to`. Returns False if there is no pause, or if the pause ends
        before this time anyway."""
        if self.due is None or to >= self.due:
            return False
        self.due = to
        return True


@dataclass(eq=False, slots=True)
class _Rejected:
    """A request that Slurm has rejected, and the Pods with this request."""

    request: Hashable
    backoff: Backoff
    last: float
    """Time of the last try."""
    after_its_start: bool = False
    """True if Slurm accepts the request, but the job fails later. Then only a job with nodes proves that
    the request works now."""
    uids: dict[str, None] = field(default_factory=dict)
    """The rejected Pods. The extender repeats the request for the first Pod next."""


class Retries:
    """The requests that Slurm has rejected. The pauses grow from `shortest` to `longest`. A random part
    makes each pause up to a quarter longer."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._pauses = Pauses(shortest, longest)
        self._requests: dict[Hashable, _Rejected] = {}
        self._of: dict[str, _Rejected] = {}
        self._dues: Ranking[_Rejected, float] = Ranking()

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def opens(self) -> float:
        """Returns the time of the next try; infinity if there are no rejected requests."""
        first = self._dues.first()
        return first[0] if first else inf

    def due(self, uid: str) -> float | None:
        """Returns the time of the next try for a rejected Pod. Returns None if Slurm has accepted the
        same request from another Pod."""
        rejected = self._of.get(uid)
        return None if rejected is None else rejected.backoff.due

    def alike(self, uid: str) -> tuple[str, ...]:
        """Returns a rejected Pod, and all other rejected Pods with the same request."""
        rejected = self._of.get(uid)
        return () if rejected is None else tuple(rejected.uids)

    def one_of_each(self) -> list[str]:
        """Returns one rejected Pod for each rejected request."""
        return [next(iter(each.uids)) for each in self._requests.values() if each.uids]

    def follow(self, record: Placeholder, before: Placeholder | None, at: Context) -> Placeholder:
        """Notes a Pod that Slurm has rejected. Returns the record, whose cause now has the time of the
        next try."""
        if before is None or before.state is not State.INVALID:
            replaced = before is not None and before.state is State.REPLACING
            self._reject(record, at.now, after_its_start=replaced)
            if record.rejections.asks_from > -inf:  # the user has changed the Pod before
                record = record.with_rejections(asks_from=at.now + at.rules.retry_touched)
        due = self.due(record.uid)
        dues = () if due is None else (Due(Step.SLURM_ASKED_AGAIN, due),)
        return record._replace(cause=record.cause and replace(record.cause, dues=dues))

    def leave(self, uid: str) -> None:
        """Removes a Pod that is not rejected any more, or that has ended."""
        rejected = self._of.pop(uid, None)
        if rejected is None:
            return
        del rejected.uids[uid]
        if not rejected.uids and not rejected.backoff.refusals:
            self._drop(rejected)

    def take(self, record: Placeholder, before: State) -> tuple[str, ...]:
        """Notes that Slurm may have accepted the request of this record. `before` is the record's
        previous state. If Slurm has accepted the request, returns the rejected Pods with the same
        request, which then wait for their turns again."""
        if not self._requests or record.state not in _TAKEN or before not in ASKED:
            return ()
        rejected, started = self._requests.get(request_of(record)), record.state is State.ALLOCATED
        if rejected is None or not (started if rejected.after_its_start else before is State.SUBMITTING):
            return ()
        self._drop(rejected)
        for uid in rejected.uids:
            del self._of[uid]
        return tuple(rejected.uids)

    def hasten(self, uid: str, now: float, pause: float) -> bool:
        """Makes the next try of a rejected Pod's request earlier: `pause` seconds after the last try.
        Returns False if the next try is due before this time anyway."""
        rejected = self._of.get(uid)
        if rejected is None or not rejected.backoff.hasten(max(now, rejected.last + pause)):
            return False
        self._dues.put(rejected, rejected.backoff.due)
        return True

    def turns(self, now: float) -> Iterator[str]:
        """Yields one Pod for each request whose pause has ended."""
        while (first := self._dues.first()) is not None and first[0] <= now:
            rejected = first[1]
            uid = next(iter(rejected.uids), None)
            if uid is None:  # the only Pod with this request has ended since the last try
                self._drop(rejected)
                continue
            rejected.last = now
            rejected.backoff.refusals += 1
            self._pause(rejected, uid, now)
            yield uid

    def _reject(self, record: Placeholder, now: float, *, after_its_start: bool) -> None:
        uid, request = record.uid, request_of(record)
        self.leave(uid)
        rejected = self._requests.get(request)
        if rejected is None:
            rejected = self._requests[request] = _Rejected(request, Backoff(self._pauses), now)
            self._pause(rejected, uid, now)
        rejected.after_its_start = after_its_start
        rejected.uids[uid] = None
        self._of[uid] = rejected

    def _pause(self, rejected: _Rejected, uid: str, now: float) -> None:
        chance = zlib.crc32(f"{uid} {rejected.backoff.refusals}".encode()) / 2**32
        rejected.backoff.pause(now, _SPREAD * chance)
        self._dues.put(rejected, rejected.backoff.due)

    def _drop(self, rejected: _Rejected) -> None:
        del self._requests[rejected.request]
        self._dues.drop(rejected)
