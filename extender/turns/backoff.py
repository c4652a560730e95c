"""The pauses before Slurm is asked again for a refused request.

Slurm refuses equal requests for equal reasons. Each class of equal requests has one backoff: after a
pause, one Pod of the class asks again, and each further pause is twice as long. If Slurm takes the
request, the other Pods of the class follow.

If Slurm refuses a request for now (a limit on jobs, a closed partition), the request pauses for seconds,
in line (`window`). If Slurm rejects a request, the request pauses for minutes (`Retries`): an
administrator may create the missing association or partition, and Slurm does not report such changes.
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
"""Largest share of a pause that chance adds: requests with one refusal are not repeated at once."""
_TAKEN = frozenset({State.QUEUED, State.ALLOCATED})


@dataclass(eq=False, slots=True)
class Backoff:
    """The pauses of one class of equal requests."""

    pauses: Pauses
    refusals: int = 0
    """Number of consecutive refusals."""
    due: float | None = None
    """End of the pause; None without a pause."""

    def pause(self, now: float, spread: float = 0.0) -> None:
        """Begins a pause, longer by the share `spread`."""
        self.due = now + self.pauses.after(self.refusals) * (1 + spread)

    def hasten(self, to: float) -> bool:
        """Ends the pause at another time. Returns False if the pause ends earlier."""
        if self.due is None or to >= self.due:
            return False
        self.due = to
        return True


@dataclass(eq=False, slots=True)
class _Rejected:
    """A rejected request."""

    request: Hashable
    backoff: Backoff
    last: float
    """Time of the last try."""
    after_its_start: bool = False
    """Slurm takes the request, and the job fails later: only a job with nodes proves the request."""
    uids: dict[str, None] = field(default_factory=dict)
    """The rejected Pods. The first Pod tries next."""


class Retries:
    """The rejected requests. The pauses of each request last from `shortest` to `longest`, and by chance
    up to a quarter longer."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._pauses = Pauses(shortest, longest)
        self._requests: dict[Hashable, _Rejected] = {}
        self._of: dict[str, _Rejected] = {}
        self._dues: Ranking[_Rejected, float] = Ranking()

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def opens(self) -> float:
        """Returns the time of the next try; infinity without rejected requests."""
        first = self._dues.first()
        return first[0] if first else inf

    def due(self, uid: str) -> float | None:
        """Returns the time of the next try for a rejected Pod; None if Slurm has taken the same request
        from another Pod."""
        rejected = self._of.get(uid)
        return None if rejected is None else rejected.backoff.due

    def alike(self, uid: str) -> tuple[str, ...]:
        """Returns the rejected Pods with the same request as a rejected Pod, and this Pod."""
        rejected = self._of.get(uid)
        return () if rejected is None else tuple(rejected.uids)

    def one_of_each(self) -> list[str]:
        """Returns a rejected Pod for each request."""
        return [next(iter(each.uids)) for each in self._requests.values() if each.uids]

    def follow(self, record: Placeholder, before: Placeholder | None, at: Context) -> Placeholder:
        """Follows a Pod that Slurm rejects. Returns the record with the time of the next try."""
        if before is None or before.state is not State.INVALID:
            replaced = before is not None and before.state is State.REPLACING
            self._reject(record, at.now, after_its_start=replaced)
            if record.rejections.asks_from > -inf:  # the Pod was changed before, perhaps again and again
                record = record.with_rejections(asks_from=at.now + at.rules.retry_touched)
        due = self.due(record.uid)
        dues = () if due is None else (Due(Step.SLURM_ASKED_AGAIN, due),)
        return record._replace(cause=record.cause and replace(record.cause, dues=dues))

    def leave(self, uid: str) -> None:
        """Removes a Pod after its rejection, or after its end."""
        rejected = self._of.pop(uid, None)
        if rejected is None:
            return
        del rejected.uids[uid]
        if not rejected.uids and not rejected.backoff.refusals:
            self._drop(rejected)

    def take(self, record: Placeholder, before: State) -> tuple[str, ...]:
        """Returns the rejected Pods whose request Slurm has just taken from a Pod with this record:
        these Pods wait in line again. `before` is the previous state."""
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
        """Repeats a rejected Pod's request as soon as the last try is `pause` seconds old. Returns False
        if the next try is not later anyway."""
        rejected = self._of.get(uid)
        if rejected is None or not rejected.backoff.hasten(max(now, rejected.last + pause)):
            return False
        self._dues.put(rejected, rejected.backoff.due)
        return True

    def turns(self, now: float) -> Iterator[str]:
        """Yields a Pod for each due request."""
        while (first := self._dues.first()) is not None and first[0] <= now:
            rejected = first[1]
            uid = next(iter(rejected.uids), None)
            if uid is None:  # after the last try, the Pod of the try ended
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
