"""A placeholder's life: its states, the one table of legal moves, and the record that moves.

The record is frozen; whoever learns something makes the next version of it. A move that the table does
not have raises `IllegalMove`, and says whose view of the world was wrong: ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any, NamedTuple, Self

from extender.placement.ownership import Identity
from extender.request.pod import Pod
from extender.request.wording import fitted
from wellknown.allocation import Allocation
from wellknown.job_key import JobIdRange, PlaceholderKey, job_name


class State(StrEnum):
    SEEN = "Seen"
    """The Pod waits for its turn; Slurm knows nothing of it."""
    SUBMITTING = "Submitting"
    """A submission is under way, or its outcome is not known, or Slurm refuses it for now."""
    QUEUED = "Queued"
    """Slurm holds the job pending."""
    ALLOCATED = "Allocated"
    """Slurm runs the job; the Pod is not bound yet."""
    BOUND = "Bound"
    """The Pod is bound to the Node that stands for the job's node."""
    REPLACING = "Replacing"
    """The allocation cannot be used; it is given back before the next attempt."""
    EVICTING = "Evicting"
    """The job ended first, or has only its GraceTime left; the Pod is being deleted."""
    RELEASING = "Releasing"
    """The Pod ended first; the job is being cancelled."""
    REFUSED = "Invalid"
    """What the Pod asks can never run; it keeps its gate until it is changed or deleted."""
    DONE = "Done"
    """A tombstone: a job that slurmctld forgot to have cancelled would be cancelled again."""


_MOVES: dict[State, frozenset[State]] = {
    State.SEEN: frozenset(
        {
            State.SUBMITTING,  # a place in Slurm's queue is free
            State.ALLOCATED,  # another replica has placed it
            State.REFUSED,  # the Pod asks for what cannot be asked
            State.REPLACING,  # a deposed replica asked for a job, and the Pod cannot use one now
            State.DONE,  # the Pod is gone, and no job was made
        }
    ),
    State.SUBMITTING: frozenset(
        {
            State.QUEUED,  # Slurm took it
            State.ALLOCATED,  # Slurm granted it at once, or had granted it before a crash of ours
            State.REFUSED,  # Slurm refuses it
            State.EVICTING,  # it had been taken, and was cancelled before we learned of it
            State.REPLACING,  # it had been taken, and lost its node or is not as the Pod asks
            State.RELEASING,  # the Pod is gone; the job may exist
        }
    ),
    State.QUEUED: frozenset(
        {
            State.ALLOCATED,  # Slurm started it
            State.SUBMITTING,  # a killed slurmctld forgot it; its id was burnt meanwhile
            State.EVICTING,  # it was cancelled while it waited
            State.REPLACING,  # it started, and lost its node; it is not as the Pod asks
            State.RELEASING,  # the Pod is gone
        }
    ),
    State.ALLOCATED: frozenset(
        {
            State.BOUND,  # /bind succeeded
            State.REPLACING,  # kube-scheduler will not have the Node; the job was lost, or is another's
            State.EVICTING,  # the job was cancelled
            State.RELEASING,  # the Pod is gone
        }
    ),
    State.BOUND: frozenset(
        {
            State.EVICTING,  # the job ended, no longer runs, or is told to leave
            State.RELEASING,  # the Pod ended
        }
    ),
    State.REPLACING: frozenset(
        {
            State.SEEN,  # the old job is over, the next attempt may begin
            State.BOUND,  # /bind was faster than we were
            State.EVICTING,  # /bind was faster, and the job is over
            State.RELEASING,  # the Pod is gone
        }
    ),
    State.EVICTING: frozenset(
        {
            State.RELEASING,  # the Pod is gone
            State.REPLACING,  # it was not the admin who ended the job, but another replica of ours
        }
    ),
    State.RELEASING: frozenset({State.DONE}),  # the job is over
    State.REFUSED: frozenset(
        {
            State.SEEN,  # the Pod was changed, or what Slurm refused is asked for again
            State.ALLOCATED,  # another replica had placed it before
            State.REPLACING,  # a deposed replica asked for a job all the same
            State.DONE,  # the Pod is gone, and no job was made
        }
    ),
    State.DONE: frozenset({State.RELEASING}),  # the job came back with a restarted slurmctld
}


WATCHED = (
    State.BOUND,
    State.QUEUED,
    State.ALLOCATED,
    State.REPLACING,
    State.EVICTING,
    State.RELEASING,
    State.DONE,
)
"""Where there may be a job whose state matters. Those of Pods that run come first: they are asked for
before others where Slurm has lost all of them."""
_CONFLICTS = 3  # others that write to a Pod cross with us now and then, but not again and again
_HOLDING = frozenset({State.ALLOCATED, State.BOUND, State.REPLACING, State.EVICTING})


class IllegalMove(RuntimeError):
    """A placeholder was asked to make a move that the table does not have: a defect of ours."""


class Due(NamedTuple):
    """What is going to happen, in words for a person that a time follows, and when (the ledger's
    clock)."""

    words: str
    at: float


@dataclass(frozen=True, slots=True)
class ConditionReason:
    """Why something ended or cannot be, for a person: a CamelCase reason and a sentence."""

    reason: str
    message: str
    dues: tuple[Due, ...] = ()
    """What comes next, as far as that is known."""
    aside: str = ""
    """What else is so, without a stop."""
    outlook: str = field(default="", compare=False)
    """What follows it all, and is no news by itself when it changes: a time, for example."""
    normal: bool = field(default=False, compare=False)
    """Nothing is wrong: its Event is no warning."""

    @property
    def words(self) -> str:
        """Returns all that is told, but for the times of what comes next."""
        return self.told("")

    def told(self, times: str) -> str:
        """Returns all that is told, in as many characters as a condition or an Event takes: of what is
        longer the aside is cut first, then the outlook, and the sentence last. `times`: those of what
        comes next, each after a semicolon."""
        sentence, stop = self.message.removesuffix("."), "." if self.message.endswith(".") else ""
        aside = f"{stop or ';'} {self.aside}" if self.aside else ""
        return fitted((sentence, aside, times + stop, self.outlook), least=(1, 3, 0))


class Refusal(NamedTuple):
    """Why a Pod is refused, and until when (the ledger's clock; infinity: until it is changed)."""

    words: str
    until: float = inf

    def cause(self, reason: str) -> ConditionReason:
        """Returns it as a cause, which tells when another job is asked for."""
        dues = (Due("another is asked for at", self.until),) if self.until < inf else ()
        return ConditionReason(reason, self.words, dues)


NO_OFFER: tuple[tuple[str, ...], float] = ((), 0.0)


class Placeholder(NamedTuple):
    """One workload's placeholder. Times are the ledger's clock, in seconds.

    A tuple, since it is copied some twenty times in a Pod's life: a copy costs an eighth of a frozen
    dataclass's.
    """

    pod: Pod
    state: State = State.SEEN
    since: float = 0.0
    """When it came into its state."""
    first_seen: float = 0.0
    """When its Pod was first seen."""
    attempt: int = 1
    attempt_try: int = 0
    job_id: int | None = None
    """The current try's job; None before there was one."""
    excluded: tuple[str, ...] = ()
    """The nodes that the job was told not to use, or would have been (`cluster.Exclusion.nodes`)."""
    immediate: bool = False
    """The current try goes by job/allocate. Where that granted it, it runs where it was granted or not
    at all: a slurmctld that is killed forgets the whole of it, and does not start it elsewhere."""
    exists: bool = False
    """Slurm has a job under the id: it must be read before anything is sent again."""
    ours: bool = False
    """The job under the id is this workload's: Slurm took it from us, or it was read. The id alone
    proves nothing: it is computed, and may be another's."""
    known: Identity | None = None
    """The job under the id, as it was when it was read with its key: it is ours from then on, whatever
    becomes of the key."""
    unsigned: bool = False
    """The job was read, and its AdminComment is not what it was asked to be."""
    made_otherwise: int = 0
    """How many jobs in a row were not what Slurm was asked for, when they were first read."""
    job_name: str | None = None
    """What the job is called, if it was read; its owner may rename it."""
    misnamed: int = 0
    """How many times Slurm has not cancelled the job, since it is called something else."""
    owner: tuple[int | None, int | None] = (None, None)
    """The user and group that Slurm was asked to give the queued job to; None where nobody was named."""
    denials: tuple[str, ...] = ()
    """What Slurm answered, the last few times, where it had no job afterwards and did not say why: at
    some point it means what it says. Until the Pod asks for something else."""
    forbidden_because: Refusal | None = None
    """Why it is refused as soon as its job is over; until it asks for something else."""
    allocation: Allocation | None = None
    written: bool = False
    """What this state has to write onto the Pod is there."""
    unverified_since: float | None = None
    """Since when it is not certain that the job of an allocation runs there: it is said to wait, or to
    have failed, or may have been started anew. It is read. Infinity: it is to be read all the same."""
    forgotten: bool = False
    """A healthy Slurm does not know the job of a Pod that is bound, or may yet turn out to be: then it
    is asked for again, and the Pod runs on."""
    job_over: bool = False
    """Slurm says that the job has ended."""
    over_since: float = 0.0
    """When that was learned, if not when it came into its state."""
    misses: int = 0
    """How many times in a row a healthy Slurm did not know the job."""
    cause: ConditionReason | None = None
    """Why it is refused, evicted or replaced, or why a bound Pod runs without a job; in other states:
    what holds it up."""
    unbound_by: float = inf
    """When a written allocation that is still not bound is given back."""
    lingers_until: float = 0.0
    """How long containers of its Pod, which is gone, may still run: until then its job is not ended, and
    whatever becomes of the job it holds its Node. 0 where they have ended."""
    missing: bool = False
    """Its Pod was not among all Pods when they were last listed: nobody has seen it being deleted."""
    clear: bool = False
    """Since the allocation was written the Pod was seen without a refusal of it: one is news now."""
    waiting_for_departures: bool = False
    """The allocated Node was refused while Pods were leaving it: that says nothing of the Node."""
    avoid: tuple[tuple[str, float], ...] = ()
    """Nodes that refused the Pod, each until when."""
    offered: tuple[tuple[str, ...], float] = NO_OFFER
    """The Nodes that kube-scheduler offered when it refused one, and until when that counts: they may be
    a thousand, and are kept compressed (`workload.Offer.taken`)."""
    asks_first: bool = False
    """The last attempt was in vain: kube-scheduler must find a Node before Slurm is asked again."""
    unbindable: int = 0
    """How many attempts in a row ended so that kube-scheduler bound nothing and offered nothing."""
    asks_from: float = -inf
    """When Slurm may be asked again at the earliest for a Pod that was refused, changed and refused
    again, if it is changed once more."""
    rests_until: float = 0.0
    """When it may be in line again, after several such attempts."""
    said: str = ""
    """What kube-scheduler last said of Nodes that it refuses."""
    shown: ConditionReason | None = None
    """What the Pod's condition says."""
    quiet_until: float = 0.0
    """When the Pod's author may be told again: after that failed, or since what is told changes all the
    time."""
    in_flight: bool = False
    """An effect that moves it on is under way."""
    showing: bool = False
    """An effect that tells the Pod's author is under way."""
    asked_why: float | None = None
    """Since when its job is being read only to tell why it waits: nothing else waits for that."""
    failures: int = 0
    """How many times in a row its effects failed."""
    conflicts: tuple[str, ...] = ()
    """The last few versions of the Pod that were gone when this state's write arrived."""
    not_before: float = 0.0
    """When the next effect may be tried; infinity while it waits for another turn."""

    def without_old_news(self, now: float) -> Self:
        """Returns the record without what was said of Nodes and does not count any more."""
        if not self.avoid and not self.offered[1]:
            return self
        avoid = tuple(each for each in self.avoid if each[1] > now)
        offered = self.offered if self.offered[1] > now else NO_OFFER
        return self._replace(avoid=avoid, offered=offered)

    @property
    def in_line(self) -> bool:
        """Tells whether it waits for a turn; a submission that is refused for now does so again."""
        return self.state is State.SEEN or (self.state is State.SUBMITTING and self.not_before == inf)

    @property
    def refused(self) -> bool:
        """Tells whether kube-scheduler will not have the allocated Node, as far as the Pod says."""
        offered = self.pod.feasible_nodes
        other = offered is not None and offered.job_id == self.job_id
        return other or self.pod.unschedulable

    @property
    def watched(self) -> bool:
        """Tells whether its job's state matters. A job that has ended is over, except for a tombstone's:
        that is what it is there to watch."""
        return self.state in WATCHED and (self.state is State.DONE or not self.job_over)

    @property
    def unseen(self) -> bool:
        """Tells whether nobody has seen its Pod: all that is known of it is what its job says."""
        return not self.pod.resource_version

    @property
    def evicted_for(self) -> ConditionReason | None:
        """Returns why its Pod is to be deleted; None where it is its job that is to be ended, since the
        Pod is not there."""
        return None if self.missing else self.cause

    @property
    def stray(self) -> bool:
        """Tells whether it stands for a job that its Pod, if there is one, has no use for any more."""
        return "#" in self.pod.uid

    @property
    def held_back(self) -> bool:
        """Tells whether the eviction limiter does not let its Pod be deleted yet."""
        return self.state is State.EVICTING and self.not_before == inf

    @property
    def awaits_volume(self) -> bool:
        """Tells whether a volume is being made for its Pod on the Node that Slurm has allocated."""
        node = self.pod.provisioned_on
        return node is not None and self.allocation is not None and self.allocation.node == node

    @property
    def holds(self) -> str | None:
        """Returns the Node where the Pod is, or may yet be bound, whatever has become of the job. Once
        the next attempt is written, an older Binding is refused: the Pod has another version. Another
        replica may have placed that attempt."""
        if self.lingers_until:
            return self.pod.node
        if self.state not in _HOLDING or self.kept_unbound:
            return None
        allocation = self.allocation
        if self.state is State.REPLACING and self.written:
            allocation = self.pod.allocation if self.pod.allocation != allocation else None
        return self.pod.node or (allocation.node if allocation else None)

    @property
    def outwritten(self) -> bool:
        """Tells whether somebody else wrote to the Pod just before us, again and again."""
        return len(self.conflicts) == _CONFLICTS

    @property
    def kept_unbound(self) -> bool:
        """Tells whether no Binding by the job can be under way, though the next attempt cannot be
        written. A Pod with a gate cannot be bound; a gate that was lifted never returns; and what we may
        have sent before to lift it names an older version than those that came and had it still."""
        return self.state is State.REPLACING and self.outwritten and self.pod.gated

    def after_conflict(self, version: str) -> Self:
        """Returns the record after a write failed, since the Pod is not in this version any more."""
        if version in self.conflicts:  # the news of another is late
            return self
        return self._replace(conflicts=(*self.conflicts, version)[-_CONFLICTS:])

    def key(self, cluster: str) -> PlaceholderKey:
        """Returns what names the current try."""
        pod = self.pod
        return PlaceholderKey(cluster, pod.namespace, pod.name, pod.uid, self.attempt, self.attempt_try)

    def move(self, state: State, now: float, **changes: Any) -> Self:
        """Returns the record in another state, rid of what belonged to the old one.

        Raises IllegalMove where the table has no such move.
        """
        if state not in _MOVES[self.state]:
            raise IllegalMove(f"{self.pod.namespace}/{self.pod.name}: {self.state} -> {state}")
        fresh: dict[str, Any] = {
            "written": False,
            "exists": False,
            "forgotten": False,
            "cause": None,
            "misses": 0,
            "failures": 0,
            "conflicts": (),
            "not_before": 0.0,
            "unbound_by": inf,
            "clear": False,
            "waiting_for_departures": False,
            "lingers_until": 0.0,
        }
        return self._replace(state=state, since=now, **(fresh | changes))

    def submitted_as(self, cluster: str, ids: JobIdRange, attempt_try: int) -> Self:
        """Returns the record with the id of another try."""
        numbered = self._replace(attempt_try=attempt_try, exists=False, written=False).unclaimed()
        numbered = numbered._replace(owner=(None, None))
        return numbered._replace(job_id=numbered.key(cluster).job_id(ids))

    def unclaimed(self) -> Self:
        """Returns the record with nothing known of the job under its id."""
        return self._replace(ours=False, known=None, unsigned=False, job_name=None, misnamed=0)

    @property
    def called(self) -> str:
        """Returns what its job is called, as far as is known."""
        own = job_name(self.pod.namespace, self.pod.name)
        return own if self.job_name is None else self.job_name

    @property
    def lost_its_key(self) -> bool:
        """Tells whether somebody has overwritten the AdminComment of its job, or of the last one."""
        return self.unsigned and self.state is not State.DONE

    @property
    def slurm_refuses(self) -> bool:
        """Tells whether it is Slurm that refuses what its Pod asks for."""
        return (
            self.state is State.REFUSED
            and not self.pod.request.problems
            and self.forbidden_because is None
        )

    @property
    def mends(self) -> bool:
        """Tells whether it waits for a person to mend Slurm's configuration."""
        return self.forbidden_because is not None and self.forbidden_because.until < inf
