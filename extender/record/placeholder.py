"""A placeholder's record: what stands for a workload in Slurm, and how far it has come.

The record is frozen; whoever learns something makes the next version of it. Four machines are coupled in
it, each a tuple of its own:

- the placement: the state, by the table of `states`;
- `job`: what is known of its job in Slurm, by the table of `phase` (`TrackedJob`);
- `members`: its Pods, their parts of what Slurm granted, and what has been written onto them (`Member`);
- `retry`: when its next effect is due (`Retry`).

`rejections` is what kube-scheduler has made of earlier allocations. A record without members stands for
a job that its Pods, if there are any, have no use for any more.
"""

from collections.abc import Container, Iterable
from dataclasses import replace
from enum import Enum, auto
from math import inf
from typing import Any, NamedTuple, Self

from extender.jobs.phase import Phase
from extender.jobs.tracked_job import NOBODY_ASKED, Asked, TrackedJob
from extender.record.condition_reason import ConditionReason, WhyInvalid
from extender.record.config import PlacementConfig
from extender.record.events import Failure
from extender.record.member import Member
from extender.record.states import HOLDING, MOVES, OPEN, OVER, WATCHED, State, phase_in
from extender.request.job_request import Request
from extender.request.node_constraints import ANYWHERE
from extender.request.pod import Pod
from extender.request.workload import Workload
from slurm_client.model import JobSpec
from wellknown.job_key import PlaceholderKey

REPEATEDLY = 5  # within some three seconds: once, it may have crossed with something else
NO_NODES: frozenset[str] = frozenset()
NO_OFFER: tuple[tuple[str, ...], float] = ((), 0.0)
_UNKNOWN = Request(JobSpec("", 0, 0), ANYWHERE)


class IllegalMove(RuntimeError):
    """A placeholder was asked to make a move that the table does not have: a defect of ours."""


class Waits(Enum):
    """What a placeholder's next effect waits for."""

    FOR_TIME = auto()
    """`Retry.not_before`; mostly that is past."""
    FOR_TURN = auto()
    """A submission that Slurm refuses for now waits for another turn (`Windows`)."""
    FOR_LIMITER = auto()
    """The eviction limiter does not let it pass yet (`EvictionLimiter`)."""


class Retry(NamedTuple):
    """Whether an effect is under way, how the last ones went, and when the next one may be tried."""

    in_flight: bool = False
    """True while an effect on the job is under way. Effects on Pods are the members' (`Write`)."""
    failures: int = 0
    """How many times in a row its effects failed."""
    waits: Waits = Waits.FOR_TIME
    not_before: float = 0.0
    """When the next effect may be tried."""
    unbound_by: float = inf
    """Time at which a written allocation that is not bound is given back."""
    denied: Failure | None = None
    """The last answer after which Slurm may have made no job, and gives no cause
    (`Mistrust.denials`)."""
    asked_why: float | None = None
    """Time since which the job is read only to report why the job waits: nothing else waits for that."""

    @property
    def due(self) -> float:
        """Returns when the next effect may be tried; infinity where it does not wait for time alone."""
        return inf if self.in_flight or self.waits is not Waits.FOR_TIME else self.not_before


class Rejections(NamedTuple):
    """Nodes that kube-scheduler has rejected, requests that Slurm has rejected, and attempts in vain."""

    nodes: tuple[tuple[str, float], ...] = ()
    """Nodes that rejected the Pod, each until when that counts."""
    offered: tuple[tuple[str, ...], float] = NO_OFFER
    """The Nodes that kube-scheduler offered when it rejected one, and until when that counts: they may
    be a thousand, and are kept compressed (`FeasibleNodes.taken`)."""
    waiting_for_departures: bool = False
    """The allocated Node was rejected while Pods were leaving it: that says nothing of the Node."""
    asks_first: bool = False
    """The last attempt was in vain: kube-scheduler must find a Node before Slurm is asked again."""
    in_a_row: int = 0
    """How many attempts in a row ended so that kube-scheduler bound nothing and offered nothing."""
    rests_until: float = 0.0
    """When it may be in line again, after several such attempts."""
    because_of_pods: int = 0
    """Number of attempts that ended because of other Pods on the Node: those lengthen no backoff."""
    forbidden_because: WhyInvalid | None = None
    """Why the Pod is invalid as soon as its job is over, until the Pod's request changes."""
    asks_from: float = -inf
    """Time before which Slurm is not asked again for a Pod that was rejected, changed, and rejected
    again."""
    spread_ignored: bool = False
    """The ledger leaves topology spread to kube-scheduler, which knows more Pods (`PodsApart`)."""

    @property
    def invalid_until(self) -> float:
        """Returns the time at which the Pod may be placed again; infinity if there is no such time."""
        return inf if self.forbidden_because is None else self.forbidden_because.until


class Placeholder(NamedTuple):
    """One workload's placeholder. Times are the ledger's clock, in seconds.

    Tuples, since they are copied some twenty times in a Pod's life: a copy costs an eighth of a frozen
    dataclass's.
    """

    uid: str
    """The ledger's own key: the workload's uid, or, without members, one for the job."""
    workload: Workload
    request: Request = _UNKNOWN
    """What is asked of Slurm for the whole workload."""
    members: tuple[Member, ...] = ()
    state: State = State.SEEN
    since: float = 0.0
    """When it came into its state."""
    first_seen: float = 0.0
    """When its first Pod was first seen."""
    cause: ConditionReason | None = None
    """Why it is refused, evicted or replaced, or why a bound Pod runs without a job; in other states:
    what holds it up."""
    lingering: tuple[tuple[str, float], ...] = ()
    """Nodes where containers of a Pod that is gone may still run, each until when: until then its job is
    not ended, and whatever becomes of the job they are held."""
    job: TrackedJob = TrackedJob()
    retry: Retry = Retry()
    rejections: Rejections = Rejections()

    @classmethod
    def of(cls, pod: Pod, now: float = 0.0) -> Self:
        """Returns the record of a workload of which the first Pod was seen."""
        workload, members = pod.workload, (Member(pod),)
        request, job = workload.request([pod.request]), TrackedJob(asked=Asked(attempt=pod.attempt))
        return cls(workload.uid, workload, request, members, since=now, first_seen=now, job=job)

    @classmethod
    def of_orphan(cls, workload: Workload, job_id: int, now: float) -> Self:
        """Returns the record of a job that no Pod is placed by: it is to be ended."""
        job = TrackedJob(job_id, Phase.ENDING, now)
        return cls(orphan_uid(workload, job_id), workload, state=State.RELEASING, since=now, job=job)

    # The next version

    def with_job(self, **changes: Any) -> Self:
        """Returns the record with something else known of its job."""
        return self._replace(job=self.job._replace(**changes))

    def with_phase(self, phase: Phase, now: float) -> Self:
        """Returns the record with its job in another phase. Raises IllegalPhase."""
        return self._replace(job=self.job.to(phase, now))

    def with_asked(self, **changes: Any) -> Self:
        """Returns the record of a job for which Slurm was asked differently."""
        return self.with_job(asked=self.job.asked._replace(**changes))

    def with_mistrust(self, **changes: Any) -> Self:
        """Returns the record with other counts of what was not as it was asked for."""
        return self.with_job(mistrust=self.job.mistrust._replace(**changes))

    def with_member(self, of: Pod, /, **changes: Any) -> Self:
        """Returns the record with something else known of the member whose Pod this is a version of."""
        members = [each._replace(**changes) if each.pod.uid == of.uid else each for each in self.members]
        return self._replace(members=tuple(members))

    def with_writes(self, of: Iterable[Pod], /, **changes: Any) -> Self:
        """Returns the record with something else known of the writes onto some Pods."""
        uids = {pod.uid for pod in of}
        return self._replace(
            members=tuple(
                [
                    each._replace(write=each.write._replace(**changes)) if each.pod.uid in uids else each
                    for each in self.members
                ]
            )
        )

    def with_members(self, **changes: Any) -> Self:
        """Returns the record with something else known of all members."""
        return self._replace(members=tuple([each._replace(**changes) for each in self.members]))

    def with_retry(self, **changes: Any) -> Self:
        """Returns the record with its next effect at another time: then it waits for that alone."""
        if "not_before" in changes:
            changes["waits"] = Waits.FOR_TIME
        return self._replace(retry=self.retry._replace(**changes))

    def with_rejections(self, **changes: Any) -> Self:
        """Returns the record with something else rejected."""
        return self._replace(rejections=self.rejections._replace(**changes))

    def with_comment(self, comment: str) -> Self:
        """Returns the record with the comment that its author gave its job."""
        job = replace(self.request.job, comment=comment or None)
        return self._replace(request=replace(self.request, job=job))

    def current_rejections(self, now: float) -> Self:
        """Returns the record without the rejections that do not count any more."""
        nodes, offered = self.rejections.nodes, self.rejections.offered
        if not nodes and not offered[1]:
            return self
        nodes = tuple(each for each in nodes if each[1] > now)
        return self.with_rejections(nodes=nodes, offered=offered if offered[1] > now else NO_OFFER)

    def move(self, state: State, now: float, *, cause: ConditionReason | None = None) -> Self:
        """Returns the record in another state, rid of what belonged to the old one.

        Raises IllegalMove where the table has no such move.
        """
        if state not in MOVES[self.state]:
            raise IllegalMove(f"{self.workload.full_name}: {self.state} -> {state}")
        job, rejections, members = self.job, self.rejections, self.members
        job = job.to(phase_in(state, job.phase), now)
        if job.mistrust.misses:
            job = job._replace(mistrust=job.mistrust._replace(misses=0))
        if rejections.waiting_for_departures:
            rejections = rejections._replace(waiting_for_departures=False)
        return self._replace(
            state=state,
            since=now,
            cause=cause,
            job=job,
            retry=Retry(self.retry.in_flight, asked_why=self.retry.asked_why),
            rejections=rejections,
            members=tuple([each.before_writes() for each in members]),
        )

    def replaced(self, now: float, cause: ConditionReason | None) -> Self:
        """Returns the record of an allocation that is given back. A Pod that is bound already cannot be
        bound again: then all of them go."""
        bound = self.state is State.ALLOCATED and any(pod.node for pod in self.pods)
        return self.move(State.EVICTING if bound else State.REPLACING, now, cause=cause)

    def submitted_as(self, attempt_try: int, rules: PlacementConfig, **asked: Any) -> Self:
        """Returns the record with the id of another try, of whose job nothing is known yet."""
        job_id = replace(self.key(rules.cluster), attempt_try=attempt_try).job_id(rules.ids)
        blank = self.unclaimed().with_job(id=job_id, unread=False)
        blank = blank.with_asked(attempt_try=attempt_try, owner=NOBODY_ASKED, **asked)
        written = any(each.write.done for each in self.members)
        return blank.with_writes(self.pods, done=False) if written else blank

    def next_try(self, rules: PlacementConfig) -> Self:
        """Returns the record with the id of this attempt's next try."""
        return self.submitted_as(self.job.asked.attempt_try + 1, rules)

    def unclaimed(self) -> Self:
        """Returns the record with nothing known of the job under its id."""
        return self._replace(job=self.job.unclaimed())

    # Its members

    @property
    def attempt(self) -> int:
        """Returns the number of the attempt, from 1 on."""
        return self.job.asked.attempt

    @property
    def unseen(self) -> bool:
        """Returns True if no Pod of the workload was seen: the job alone is known."""
        return not self.members and not self.workload.created

    @property
    def pods(self) -> list[Pod]:
        """Returns the Pods of its members."""
        return [each.pod for each in self.members]

    def member(self, uid: str) -> Member | None:
        """Returns the member whose Pod this is, None where it is none."""
        for each in self.members:
            if each.pod.uid == uid:
                return each
        return None

    @property
    def lacking(self) -> int:
        """Returns how many Pods of its workload it does not have."""
        return self.workload.size - len(self.members)

    def is_by_its_job(self, pod: Pod) -> bool:
        """Tells whether a Pod is placed by the workload's job, as far as it says itself."""
        carried = pod.allocation
        there = carried is not None and pod.node in (None, carried.node)
        return there and carried is not None and carried.job_id == self.job.id

    def takes(self, pod: Pod) -> bool:
        """Tells whether another Pod of the workload can be placed with those that it has."""
        may_be_bound = self.state not in OVER and self.is_by_its_job(pod)
        unbound = self.state is State.BOUND and pod.node is None
        return (self.state in OPEN or (may_be_bound and not unbound)) and self.lacking > 0

    @property
    def lead(self) -> Pod:
        """Returns the Pod that stands for all of them: its priority, its age."""
        return self.members[0].pod

    @property
    def write_done(self) -> bool:
        """Tells whether what this state has to write is on all Pods."""
        return all(each.write.done for each in self.members)

    @property
    def in_flight(self) -> bool:
        """Returns True while an effect on the job or on a Pod is under way."""
        return self.retry.in_flight or any(each.write.in_flight for each in self.members)

    @property
    def all_bound(self) -> bool:
        """Tells whether all Pods are bound that it has."""
        return all(pod.node is not None for pod in self.pods)

    @property
    def gated(self) -> bool:
        """Tells whether our own scheduling gate holds a Pod back."""
        return any(pod.gated for pod in self.pods)

    @property
    def said(self) -> str:
        """Returns what kube-scheduler last said of Nodes that it rejects."""
        return next((each.said for each in self.members if each.said), "")

    @property
    def unlisted(self) -> bool:
        """Tells whether a Pod was not among all Pods when they were last listed."""
        return any(each.unlisted for each in self.members)

    @property
    def leaving(self) -> bool:
        """Tells whether all Pods are being deleted."""
        return all(pod.leaving for pod in self.pods)

    # What follows from it

    @property
    def in_line(self) -> bool:
        """Tells whether it waits for a turn; a submission that is refused for now does so again."""
        waits = self.state is State.SUBMITTING and self.retry.waits is Waits.FOR_TURN
        return self.state is State.SEEN or waits

    @property
    def node_rejected(self) -> bool:
        """Tells whether kube-scheduler will not have an allocated Node, as far as the Pods say."""
        return any(each.rejects(self.job.id) for each in self.members)

    @property
    def watched(self) -> bool:
        """Tells whether its job's state matters. A job that has ended is over, except for a tombstone's:
        that is what it is there to watch."""
        return self.state in WATCHED and (self.state is State.DONE or not self.job.over)

    @property
    def has_lost_job(self) -> bool:
        """Returns True if a healthy Slurm does not know the job of Pods that are bound, or may be."""
        job = self.job
        return job.phase is Phase.LOST or (self.state is State.BOUND and job.phase is Phase.ASKED)

    @property
    def misses_job(self) -> bool:
        """Returns True if a healthy Slurm did not know the job in the last poll."""
        return self.has_lost_job or self.job.mistrust.misses > 0

    @property
    def evicted_for(self) -> ConditionReason | None:
        """Returns why its Pods are to be deleted; None where it is its job that is to be ended, since
        they are not there."""
        return None if self.unlisted else self.cause

    @property
    def throttled(self) -> bool:
        """Tells whether the eviction limiter does not let its Pods be deleted yet."""
        return self.state is State.EVICTING and self.retry.waits is Waits.FOR_LIMITER

    @property
    def lingers_until(self) -> float:
        """Returns when the last containers of Pods that are gone have ended; 0 where they have."""
        return max([until for _, until in self.lingering]) if self.lingering else 0.0

    @property
    def holds(self) -> frozenset[str]:
        """Returns the Nodes where its Pods are, or may yet be bound, whatever has become of the job."""
        if self.state not in HOLDING and not self.lingering:  # as mostly
            return NO_NODES
        nodes = {node for node, _ in self.lingering}
        if self.state in HOLDING and not self.kept_unbound:
            nodes.update(node for each in self.members if (node := each.node_in(self.state)))
        return frozenset(nodes)

    def names_on(self, nodes: Container[str]) -> list[str]:
        """Returns who holds some of these Nodes: the Pods, or the workload whose Pods are gone."""
        there = [each for each in self.members if each.node_in(self.state) in nodes]
        return [each.pod.full_name for each in there] or [self.workload.full_name]

    @property
    def kept_unbound(self) -> bool:
        """Tells whether no Binding by the job can be under way, though the next attempt cannot be
        written onto a Pod."""
        if self.state is not State.REPLACING or not any(each.kept_unbound for each in self.members):
            return False
        return all(each.write.done or each.kept_unbound for each in self.members)

    def key(self, cluster: str) -> PlaceholderKey:
        """Returns what names the current try."""
        uid, namespace, name, *_ = self.workload
        return PlaceholderKey(cluster, namespace, name, uid, self.attempt, self.job.asked.attempt_try)

    @property
    def rejected_by_slurm(self) -> bool:
        """Tells whether it is Slurm that refuses what it asks for."""
        own = self.request.problems or self.rejections.forbidden_because is not None
        return self.state is State.INVALID and not own


def orphan_uid(workload: Workload, job_id: int) -> str:
    """Returns the ledger's key for a job that no Pod of its workload is placed by."""
    return f"{workload.uid}#{job_id}"
