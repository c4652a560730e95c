"""A Pod of a workload: what Kubernetes shows of it, its part of what Slurm has granted, and how far the
writes to it have come."""

from collections.abc import Iterable, Sequence
from itertools import compress
from math import inf
from operator import is_not
from typing import NamedTuple, Self

from extender.record.condition_reason import ConditionReason
from extender.record.states import State
from extender.request.pod import Pod
from wellknown.allocation import Allocation

CONFLICTS = 3  # others that write to a Pod cross with us now and then, but not again and again


class Write(NamedTuple):
    """The write that the placeholder's state has to make onto a Pod."""

    done: bool = False
    """True if the Pod has what the state writes."""
    in_flight: bool = False
    """True while an effect on the Pod is under way. One at a time, so that no two writes cross."""
    failures: int = 0
    """Number of failures in a row."""
    not_before: float = 0.0
    """Time before which the write is not tried."""
    conflicts: tuple[str, ...] = ()
    """The last few versions of the Pod that were gone when the write arrived."""

    @property
    def due(self) -> float:
        """Returns the time at which the write may be tried; infinity while an effect is under way."""
        return inf if self.in_flight else self.not_before


class Member(NamedTuple):
    """One Pod, its part of what Slurm granted, and what has been written onto it."""

    pod: Pod
    slot: Allocation | None = None
    """The Pod's part of what Slurm granted to its workload."""
    write: Write = Write()
    rejection_cleared: bool = False
    """Since the allocation was written the Pod was seen without a rejection of it: one is news now."""
    unlisted: bool = False
    """The Pod was not among all Pods when they were last listed: nobody has seen it being deleted."""
    said: str = ""
    """What kube-scheduler last said of Nodes that it rejects."""
    shown: ConditionReason | None = None
    """What the Pod's condition says."""
    quiet_until: float = 0.0
    """When the Pod's author may be told again: after that failed, or since what is told changes all the
    time."""
    reporting: bool = False
    """An effect that tells the Pod's author is under way."""

    @property
    def outwritten(self) -> bool:
        """Tells whether somebody else wrote to the Pod just before us, again and again."""
        return len(self.write.conflicts) == CONFLICTS

    @property
    def kept_unbound(self) -> bool:
        """Tells whether the Pod cannot be bound though the next attempt cannot be written onto it. A Pod
        with a gate cannot be bound; a gate that was lifted never returns; and what we may have sent
        before to lift it names an older version than those that came and had it still."""
        return self.outwritten and self.pod.gated

    def rejects(self, job_id: int | None) -> bool:
        """Tells whether kube-scheduler will not have the Node that a job has, as far as the Pod says."""
        offered = self.pod.feasible_nodes
        return self.pod.unschedulable or (offered is not None and offered.job_id == job_id)

    def node_in(self, state: State) -> str | None:
        """Returns the Node where the Pod is, or may yet be bound, in this state. Once the next attempt
        is written, an older Binding is refused: the Pod has another version. Another replica may have
        placed that attempt."""
        slot = self.slot
        if state is State.REPLACING and self.write.done:
            slot = self.pod.allocation if self.pod.allocation != slot else None
        return self.pod.node or (slot.node if slot else None)

    def before_writes(self) -> Self:
        """Returns it in a new state, for which nothing has been written yet."""
        blank = Write(in_flight=self.write.in_flight)
        if self.write == blank and not self.rejection_cleared:
            return self
        return self._replace(write=blank, rejection_cleared=False)


Members = tuple[Member, ...]


def changed_members(before: Members, after: Members) -> list[tuple[Member, Member]] | None:
    """Returns the members of which something else is known, before and after; None if the Pods are not
    the same. Costs little for the members that have not changed."""
    if len(before) != len(after):
        return None
    changed = list(compress(zip(before, after, strict=True), map(is_not, before, after)))
    return None if any(old.pod.uid != new.pod.uid for old, new in changed) else changed


def with_slots(members: Sequence[Member], slots: Iterable[Allocation]) -> tuple[Member, ...]:
    """Returns the members with a slot each: whoever has one of these Nodes keeps it, since that may be
    written onto the Pod already; the others get what is left, in their order. There are as many Nodes as
    members."""
    free = {slot.node: slot for slot in slots}
    nodes = {each.pod.uid: each.node_in(State.ALLOCATED) for each in members}
    kept = {uid: free.pop(node) for uid, node in nodes.items() if node in free}
    rest = iter(free.values())
    return tuple(each._replace(slot=kept.get(each.pod.uid) or next(rest)) for each in members)
