"""A placeholder's record: what stands for a workload in Slurm, and how far it has come.

The record is frozen; whoever learns something makes the next version of it. Four machines are coupled in
it, each a tuple of its own:

- the placement: the state, by the table of `states`;
- `job`: what is known of its job in Slurm (`JobTracking`);
- `member`: the Pod, and what has been written there (`Member`);
- `retry`: when its next effect is due (`Retry`).

`rejections` is what kube-scheduler has made of earlier allocations.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any, NamedTuple, Self

from extender.placement.condition_reason import ConditionReason, Refusal
from extender.placement.job_tracking import JobTracking
from extender.placement.member import Member
from extender.placement.rejections import Rejections
from extender.placement.retry import Retry, Waits
from extender.placement.states import HOLDING, MOVES, WATCHED, State
from extender.request.pod import Pod
from wellknown.allocation import Allocation
from wellknown.job_key import JobIdRange, PlaceholderKey, job_name


class IllegalMove(RuntimeError):
    """A placeholder was asked to make a move that the table does not have: a defect of ours."""


class Placeholder(NamedTuple):
    """One workload's placeholder. Times are the ledger's clock, in seconds.

    Tuples, since they are copied some twenty times in a Pod's life: a copy costs an eighth of a frozen
    dataclass's.
    """

    member: Member
    state: State = State.SEEN
    since: float = 0.0
    """When it came into its state."""
    first_seen: float = 0.0
    """When its Pod was first seen."""
    attempt: int = 1
    cause: ConditionReason | None = None
    """Why it is refused, evicted or replaced, or why a bound Pod runs without a job; in other states:
    what holds it up."""
    forbidden_because: Refusal | None = None
    """Why it is refused as soon as its job is over; until it asks for something else."""
    allocation: Allocation | None = None
    unbound_by: float = inf
    """When a written allocation that is still not bound is given back."""
    asks_from: float = -inf
    """When Slurm may be asked again at the earliest for a Pod that was refused, changed and refused
    again, if it is changed once more."""
    job: JobTracking = JobTracking()
    retry: Retry = Retry()
    rejections: Rejections = Rejections()

    @property
    def pod(self) -> Pod:
        """Returns the Pod as it was last seen."""
        return self.member.pod

    # The next version

    def with_job(self, **changes: Any) -> Self:
        """Returns the record with something else known of its job."""
        return self._replace(job=self.job._replace(**changes))

    def with_member(self, **changes: Any) -> Self:
        """Returns the record with another Pod, or other writes to it."""
        return self._replace(member=self.member._replace(**changes))

    def with_retry(self, **changes: Any) -> Self:
        """Returns the record with its next effect at another time: then it waits for that alone."""
        if "not_before" in changes:
            changes["waits"] = Waits.FOR_TIME
        return self._replace(retry=self.retry._replace(**changes))

    def with_rejections(self, **changes: Any) -> Self:
        """Returns the record with something else rejected."""
        return self._replace(rejections=self.rejections._replace(**changes))

    def move(self, state: State, now: float, *, cause: ConditionReason | None = None) -> Self:
        """Returns the record in another state, rid of what belonged to the old one.

        Raises IllegalMove where the table has no such move.
        """
        if state not in MOVES[self.state]:
            raise IllegalMove(f"{self.pod.namespace}/{self.pod.name}: {self.state} -> {state}")
        return self._replace(
            state=state,
            since=now,
            cause=cause,
            unbound_by=inf,
            job=self.job._replace(must_read=False, lost=False, misses=0),
            member=self.member.in_another_state(),
            retry=Retry(self.retry.in_flight),
            rejections=self.rejections._replace(waiting_for_departures=False),
        )

    def submitted_as(self, cluster: str, ids: JobIdRange, attempt_try: int) -> Self:
        """Returns the record with the id of another try."""
        key = replace(self.key(cluster), attempt_try=attempt_try)
        numbered = self.job.numbered(key.job_id(ids), attempt_try)
        return self._replace(job=numbered, member=self.member._replace(write_done=False))

    def unclaimed(self) -> Self:
        """Returns the record with nothing known of the job under its id."""
        return self._replace(job=self.job.unclaimed())

    def current_rejections(self, now: float) -> Self:
        """Returns the record without the rejections that do not count any more."""
        current = self.rejections.current(now)
        return self if current is self.rejections else self._replace(rejections=current)

    # What follows from it

    @property
    def in_line(self) -> bool:
        """Tells whether it waits for a turn; a submission that is refused for now does so again."""
        waits = self.state is State.SUBMITTING and self.retry.waits is Waits.FOR_TURN
        return self.state is State.SEEN or waits

    @property
    def node_rejected(self) -> bool:
        """Tells whether kube-scheduler will not have the allocated Node, as far as the Pod says."""
        offered = self.pod.offered
        other = offered is not None and offered.job_id == self.job.id
        return other or self.pod.unschedulable

    @property
    def watched(self) -> bool:
        """Tells whether its job's state matters. A job that has ended is over, except for a tombstone's:
        that is what it is there to watch."""
        return self.state in WATCHED and (self.state is State.DONE or not self.job.over)

    @property
    def unseen(self) -> bool:
        """Tells whether nobody has seen its Pod: all that is known of it is what its job says."""
        return not self.pod.resource_version

    @property
    def evicted_for(self) -> ConditionReason | None:
        """Returns why its Pod is to be deleted; None where it is its job that is to be ended, since the
        Pod is not there."""
        return None if self.member.unlisted else self.cause

    @property
    def orphan(self) -> bool:
        """Tells whether it stands for a job that its Pod, if there is one, has no use for any more."""
        return "#" in self.pod.uid

    @property
    def throttled(self) -> bool:
        """Tells whether the eviction limiter does not let its Pod be deleted yet."""
        return self.state is State.EVICTING and self.retry.waits is Waits.FOR_LIMITER

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
        if self.member.lingers_until:
            return self.pod.node
        if self.state not in HOLDING or self.kept_unbound:
            return None
        allocation = self.allocation
        if self.state is State.REPLACING and self.member.write_done:
            allocation = self.pod.allocation if self.pod.allocation != allocation else None
        return self.pod.node or (allocation.node if allocation else None)

    @property
    def kept_unbound(self) -> bool:
        """Tells whether no Binding by the job can be under way, though the next attempt cannot be
        written. A Pod with a gate cannot be bound; a gate that was lifted never returns; and what we may
        have sent before to lift it names an older version than those that came and had it still."""
        return self.state is State.REPLACING and self.member.outwritten and self.pod.gated

    def key(self, cluster: str) -> PlaceholderKey:
        """Returns what names the current try."""
        pod, attempt_try = self.pod, self.job.attempt_try
        return PlaceholderKey(cluster, pod.namespace, pod.name, pod.uid, self.attempt, attempt_try)

    @property
    def called(self) -> str:
        """Returns what its job is called, as far as is known."""
        own = job_name(self.pod.namespace, self.pod.name)
        return own if self.job.name is None else self.job.name

    @property
    def lost_its_key(self) -> bool:
        """Tells whether somebody has overwritten the AdminComment of its job, or of the last one."""
        return self.job.unsigned and self.state is not State.DONE

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
