"""One Pod of a workload: the observed Pod, the Pod's slot, and the progress of the writes to the Pod."""

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple, Self

from extender.explain.cause import Cause
from extender.pod_request.pod import Pod
from extender.record.states import State
from wellknown.allocation import Allocation

_MOST_LEFT = 4  # slots; a node agent lags behind by fewer changes of a Pod's slot
CONFLICTS = 3  # one failed write may be a coincidence, but not three in a row


class Write(NamedTuple):
    """Progress of the write onto a Pod that the placeholder's state requires."""

    done: bool = False
    """True if this write has succeeded."""
    in_flight: bool = False
    """True while an effect on the Pod is under way. The extender carries out one effect at a time, so
    that no two writes conflict."""
    failures: int = 0
    """Number of failures in a row."""
    not_before: float = 0.0
    """Time before which the write is not tried."""
    conflicts: tuple[str, ...] = ()
    """Last versions of the Pod for which a write failed, because the Pod had changed before the write
    arrived."""

    @property
    def due(self) -> float:
        """Returns the time at which the write may be tried; infinity while an effect is under way."""
        return inf if self.in_flight else self.not_before


class Member(NamedTuple):
    """One Pod of a workload, the Pod's slot, and the progress of the extender's writes to the Pod."""

    pod: Pod
    slot: Allocation | None = None
    """Part of the workload's grant for this Pod."""
    left_slots: tuple[Allocation, ...] = ()
    """Last slots that the bound Pod had before its present slot. The node agent may not have moved the
    containers from these slots yet."""
    write: Write = Write()
    rejection_cleared: bool = False
    """True if the Pod was seen without a rejection by kube-scheduler after the allocation was written.
    Only a later rejection is about this allocation."""
    unlisted: bool = False
    """True if the Pod was missing from the last list of all Pods, although no deletion was seen."""
    last_rejection: str = ""
    """Last message of kube-scheduler about rejected Nodes."""
    shown: Cause | None = None
    """Cause that the Pod's condition shows now."""
    quiet_until: float = 0.0
    """Time before which the extender reports nothing more on the Pod, because a report failed or because
    the cause changes very often."""
    reporting: bool = False
    """True while a report on the Pod is under way."""

    @property
    def written(self) -> bool:
        """Returns True if the present slot is written onto the Pod."""
        return self.write.done and self.pod.scheduling.allocation == self.slot

    @property
    def outwritten(self) -> bool:
        """Returns True if several writes of the extender failed because another client had just changed
        the Pod."""
        return len(self.write.conflicts) == CONFLICTS

    @property
    def kept_unbound(self) -> bool:
        """Returns True if the next attempt cannot be written onto the Pod, but the Pod cannot be bound
        either. A Pod with a gate cannot be bound. A removed gate never returns, so no earlier write has
        removed the gate. If such a write is still under way, the write fails, because the write names an
        older version of the Pod."""
        return self.outwritten and self.pod.gated

    def rejects(self, job_id: int | None) -> bool:
        """Returns True if the Pod shows that kube-scheduler rejects the Node of a job."""
        offered = self.pod.scheduling.feasible_nodes
        return self.pod.unschedulable or (offered is not None and offered.job_id == job_id)

    def node_in(self, state: State) -> str | None:
        """Returns the Node where the Pod is, or may still be bound, in this state. After the next
        attempt is written onto the Pod, kube-apiserver rejects a Binding of the last attempt, because
        the Pod's version has changed. However, another replica may already have placed the Pod in the
        next attempt."""
        slot = self.slot
        if state is State.REPLACING and self.write.done:
            slot = self.pod.scheduling.allocation if self.pod.scheduling.allocation != slot else None
        return self.pod.life.node or (slot.node if slot else None)

    @property
    def on_left_slots(self) -> Iterator[Pod]:
        """Yields a copy of the Pod for each slot on which the Pod's containers may still run. The slot
        is the allocation of the copy."""
        for slot in (*self.left_slots, self.pod.scheduling.allocation):
            yield self.pod._replace(scheduling=self.pod.scheduling._replace(allocation=slot))

    def nearest(self, slots: Sequence[Allocation]) -> Allocation:
        """Returns the slot with the devices of the Pod, because no write changes the devices of a
        running container. Returns the first slot if no slot has these devices."""
        own = self.pod.scheduling.allocation
        return next((each for each in slots if own is not None and each.gres == own.gres), slots[0])

    def left_with(self, pod: Pod) -> tuple[Allocation, ...]:
        """Returns the next value of `left_slots`, after `pod` (a new version of the Pod) was seen. If
        the new version has another slot, the result also has the present slot."""
        before = self.pod.scheduling.allocation
        if before is None or before.node != self.pod.life.node or before == pod.scheduling.allocation:
            return self.left_slots  # the common case
        return (*self.left_slots, before)[-_MOST_LEFT:]

    def before_writes(self) -> Self:
        """Returns the member for a new state, in which no write is done yet."""
        blank = Write(in_flight=self.write.in_flight)
        if self.write == blank and not self.rejection_cleared:
            return self
        return self._replace(write=blank, rejection_cleared=False)
