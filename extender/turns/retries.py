"""Requests that Slurm has refused, and when each is made again: what was wrong may have been mended.

An administrator makes the association or the partition that was missing, and tells nobody. So what was
refused is asked for again: after some minutes, and soon after its Pod was annotated or the nodes that it
may use have changed. Pods that ask for the same share one try: one of them asks, and as soon as Slurm
takes what any Pod asks for, all that are alike are in line again.
"""

import zlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from math import inf

from extender.record.condition_reason import Due
from extender.record.config import Context
from extender.record.placeholder import Placeholder
from extender.record.states import ASKED, State
from extender.request.job_request import without_pod
from extender.turns.ranking import Ranking

_SPREAD = 0.25  # what was refused together is not tried together
_ASKED_AGAIN = "Slurm is asked again when the Pod is annotated, or at"
_TAKEN = frozenset({State.QUEUED, State.ALLOCATED})


def request_of(record: Placeholder) -> Hashable:
    """Returns what Slurm is asked for, without the Pod: a job_submit plugin may go by any part."""
    request = record.request
    return record.workload.namespace, without_pod(request.job), request.constraints.signature


@dataclass(eq=False, slots=True)
class _Refused:
    """One request, and when it is made again."""

    request: Hashable
    last: float
    """When it was made last, as far as is counted here."""
    due: float = inf
    tries: int = 0
    """How many times in a row it was made again."""
    after_its_start: bool = False
    """Slurm takes the request, and its job fails later: only a job with nodes proves that it passed."""
    uids: dict[str, None] = field(default_factory=dict)
    """The Pods that are refused, in the order of their turns to try."""


class Retries:
    """Each request rests for `shortest` seconds after it was refused, then each time twice as long, up
    to `longest`, and by chance up to a quarter more."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest = shortest
        self._longest = longest
        self._requests: dict[Hashable, _Refused] = {}
        self._of: dict[str, _Refused] = {}
        self._dues: Ranking[Hashable, float] = Ranking()

    @property
    def opens(self) -> float:
        """When the next request is made again; infinity where there is none."""
        first = self._dues.first()
        return first[0] if first else inf

    def due(self, uid: str) -> float | None:
        """Returns when the request of a refused Pod is made again; None where it is not: Slurm has taken
        it from another Pod."""
        refused = self._of.get(uid)
        return None if refused is None else refused.due

    def alike(self, uid: str) -> tuple[str, ...]:
        """Returns the refused Pods that ask for the same as a refused Pod, which is one of them."""
        refused = self._of.get(uid)
        return () if refused is None else tuple(refused.uids)

    def one_of_each(self) -> list[str]:
        """Returns for each request a Pod that is refused."""
        return [next(iter(each.uids)) for each in self._requests.values() if each.uids]

    def refuse(self, record: Placeholder, now: float, *, after_its_start: bool = False) -> None:
        """Slurm refuses what a Pod asks for, or the job that it took for that."""
        uid, request = record.uid, request_of(record)
        self.leave(uid)
        refused = self._requests.get(request)
        if refused is None:
            refused = self._requests[request] = _Refused(request, now)
            self._rest(refused, uid, now)
        refused.after_its_start = after_its_start
        refused.uids[uid] = None
        self._of[uid] = refused

    def follow(self, record: Placeholder, before: Placeholder | None, at: Context) -> Placeholder:
        """Takes note of a Pod that Slurm refuses, and returns its record, which says until when."""
        if before is None or before.state is not State.INVALID:
            replaced = before is not None and before.state is State.REPLACING
            self.refuse(record, at.now, after_its_start=replaced)
            if record.rejections.asks_from > -inf:  # the Pod was changed before, perhaps again and again
                record = record.with_rejections(asks_from=at.now + at.rules.retry_touched)
        due = self.due(record.uid)
        dues = () if due is None else (Due(_ASKED_AGAIN, due),)
        return record._replace(cause=record.cause and replace(record.cause, dues=dues))

    def leave(self, uid: str) -> None:
        """A Pod is not refused any more, or gone."""
        refused = self._of.pop(uid, None)
        if refused is None:
            return
        del refused.uids[uid]
        if not refused.uids and not refused.tries:
            self._drop(refused)

    def take(self, record: Placeholder, before: State) -> tuple[str, ...]:
        """Slurm has taken what a Pod asks for, if its state, and the one before, say so. Returns the
        refused Pods that ask for the same: they are to be in line again."""
        if not self._requests or record.state not in _TAKEN or before not in ASKED:
            return ()
        refused = self._requests.get(request_of(record))
        if refused is None:
            return ()
        enough = (
            record.state is State.ALLOCATED if refused.after_its_start else before is State.SUBMITTING
        )
        if not enough:
            return ()
        self._drop(refused)
        for uid in refused.uids:
            del self._of[uid]
        return tuple(refused.uids)

    def hasten(self, uid: str, now: float, pause: float) -> bool:
        """The request of a refused Pod may be possible now: it is made as soon as it was last made so
        many seconds ago. Tells whether that is sooner than otherwise."""
        refused = self._of.get(uid)
        soon = inf if refused is None else max(now, refused.last + pause)
        if refused is None or soon >= refused.due:
            return False
        refused.due = soon
        self._dues.put(refused.request, soon)
        return True

    def turns(self, now: float) -> Iterator[str]:
        """Yields for each request whose time has come the Pod that is to try."""
        while (first := self._dues.first()) is not None and first[0] <= now:
            refused = self._requests[first[1]]
            uid = next(iter(refused.uids), None)
            if uid is None:  # who tried last is gone
                self._drop(refused)
                continue
            refused.last, refused.tries = now, refused.tries + 1
            self._rest(refused, uid, now)
            yield uid

    def _rest(self, refused: _Refused, uid: str, now: float) -> None:
        rest = min(self._longest, self._shortest * 2.0 ** min(refused.tries, 20))
        chance = zlib.crc32(f"{uid} {refused.tries}".encode()) / 2**32
        refused.due = now + rest * (1 + _SPREAD * chance)
        self._dues.put(refused.request, refused.due)

    def _drop(self, refused: _Refused) -> None:
        del self._requests[refused.request]
        self._dues.drop(refused.request)
