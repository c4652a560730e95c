"""Placeholders that wait for a turn in one partition: each owner has a queue, and in it each kind of Pod
a line.

What Slurm refuses for now (a limit on jobs, a closed partition) it would refuse to all that are alike:
their line rests, and then one is let through after the other, more at a time as they succeed. Other
lines go on meanwhile. But an owner may have any number of lines: those that rest are tried again a few
at a time, and more as Slurm takes them.
"""

from collections.abc import Hashable
from math import inf
from operator import attrgetter
from typing import NamedTuple, Self

from extender.record.condition_reason import ConditionReason
from extender.record.placeholder import Placeholder
from extender.request.pod import Pod
from extender.turns.ranking import Ranking
from slurm_client.model import Decides, JobSpec, fields_that_decide

Turn = tuple[int, str, str]
_LONGEST_RESTS = 15  # a line that is refused again and again rests so many times as long as at first
_MANY = 1 << 30
_TRIES = 10
"""So many lines of an owner that were refused are tried again while a line rests at first."""
demand_of = attrgetter(*fields_that_decide(Decides.DEMAND))
"""Returns the fields of a job that say whether Slurm has a place for it."""


def turn_of(pod: Pod) -> Turn:
    """Returns what the order within one owner goes by: priority, then age."""
    return (-pod.priority, pod.created, pod.uid)


class Owner(NamedTuple):
    """For whom a job waits in Slurm: what its limits depend on. None is what Slurm gives by default."""

    user_id: int | None
    namespace: str | None
    """The Pod's, where it has no user: the jobs of all such Pods are those of the token's user, and one
    namespace's must not hold up another's. None where it has a user."""
    account: str | None
    qos: str | None
    reservation: str | None

    @classmethod
    def of(cls, namespace: str, job: JobSpec) -> Self:
        """Returns whose a job for a Pod of this namespace is. The order of names in a list ("a,b") makes
        no other owner, nor does the case of an account or a QOS (Slurm's assoc_mgr compares both
        without it)."""
        account, qos = job.account and job.account.lower(), job.qos and job.qos.lower()
        qos, reservation = (names and ordered(names) for names in (qos, job.reservation))
        return cls(job.user_id, namespace if job.user_id is None else None, account, qos, reservation)


def ordered(names: str) -> str:
    """Returns the names of a list ("a,b") in an order of their own."""
    return ",".join(sorted(set(names.split(",")))) if "," in names else names


def kind_of(record: Placeholder) -> Hashable:
    """Returns what Slurm's limits, and the nodes that are open to a Pod, depend on besides its owner."""
    request, rejections = record.request, record.rejections
    return demand_of(request.job), request.constraints.signature, rejections.nodes, rejections.offered


class Line:
    """Pods of one owner that are alike: which of them wait for a turn, and how many may go."""

    def __init__(self, queue: "Queue", kind: Hashable, rest: float) -> None:
        self.queue = queue
        self.kind = kind
        self._rest = rest
        self.waiting: Ranking[str, Turn] = Ranking()
        self.members = 0
        """Those that wait, and those that are on their way to Slurm."""
        self.cause: ConditionReason | None = None
        """Why Slurm refused the last one; None while it takes them."""
        self.rests_until: float | None = None
        """When the next one may go; None while it is open."""
        self._refused_since = 0.0
        self._may_go = _MANY

    def refused(self, cause: ConditionReason | None, now: float) -> None:
        """Slurm takes none of these for now: one at a time finds out whether that has changed."""
        if self.cause is None:
            self._refused_since = now
        self.cause, self._may_go = cause, 0
        self._pause(now)

    def taken(self) -> None:
        """Slurm took one: two more may follow."""
        self.cause, self._may_go, self.rests_until = None, min(_MANY, self._may_go + 2), None

    def goes(self, uid: str, now: float) -> None:
        """One leaves for Slurm. Its answer may never come: the line opens again without it."""
        self.waiting.drop(uid)
        self._may_go = max(0, self._may_go - 1)
        if not self._may_go:
            self._pause(now)

    def opens(self) -> None:
        """One may find out whether Slurm takes it now."""
        self.rests_until = None

    def _pause(self, now: float) -> None:
        """Short at first, then longer and longer."""
        longer = (now - self._refused_since) / 4 if self.cause is not None else 0.0
        self.rests_until = now + min(max(self._rest, longer), _LONGEST_RESTS * self._rest)


class Queue:
    """One owner's lines, and how many of its Pods are in Slurm's queue."""

    def __init__(self, owner: Owner, rest: float, served: int) -> None:
        self.owner = owner
        self._rest = rest
        self.lines: dict[Hashable, Line] = {}
        self.heads: Ranking[Line, Turn] = Ranking()
        """The open lines in which somebody waits, by who is first in each."""
        self.resting: Ranking[Line, float] = Ranking()
        """The others, by when they open."""
        self.in_slurm = 0
        """How many stand in Slurm's queue, or are on their way there."""
        self.served = served
        """The number of the turn that it was given last, or in which it came."""
        self._tries = 0
        """How many of its lines may be tried again at once."""
        self._tried_until = 0.0

    @property
    def empty(self) -> bool:
        """Tells whether it has nobody left."""
        return not self.lines and not self.in_slurm

    @property
    def opens(self) -> float:
        """When the next line that rests may be tried again; infinity where none rests."""
        first = self.resting.first()
        if first is None:
            return inf
        return 0.0 if self._tries else max(first[0], self._tried_until)

    def open_next(self, now: float) -> Line:
        """Opens the line that has rested longest."""
        _, line = self.resting.top
        if self._tries:
            self._tries -= 1
        else:
            self._tried_until = now + self._rest / _TRIES
        line.opens()
        return line

    def wake(self) -> None:
        """What Slurm refused may be possible now."""
        self._may_try(_TRIES)

    def taken(self) -> None:
        """Slurm took one: two more of those lines that rest may be tried."""
        self._may_try(self._tries + 2)

    def refused(self) -> None:
        """Slurm did not take one."""
        self._tries = 0

    def _may_try(self, more: int) -> None:
        self._tries = min(_TRIES, more) if len(self.resting) else 0
