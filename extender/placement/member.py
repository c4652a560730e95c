"""One Pod of a workload: what Kubernetes shows of it, and what has been written there."""

from __future__ import annotations

from typing import NamedTuple, Self

from extender.placement.condition_reason import ConditionReason
from extender.request.pod import Pod

_CONFLICTS = 3  # others that write to a Pod cross with us now and then, but not again and again


class Member(NamedTuple):
    """A Pod, and how far the writes to it have come."""

    pod: Pod
    write_done: bool = False
    """What the placeholder's state has to write onto the Pod is there."""
    conflicts: tuple[str, ...] = ()
    """The last few versions of the Pod that were gone when this state's write arrived."""
    rejection_cleared: bool = False
    """Since the allocation was written the Pod was seen without a rejection of it: one is news now."""
    unlisted: bool = False
    """The Pod was not among all Pods when they were last listed: nobody has seen it being deleted."""
    lingers_until: float = 0.0
    """How long containers of the Pod, which is gone, may still run: until then its job is not ended, and
    whatever becomes of the job it holds its Node. 0 where they have ended."""
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
        return len(self.conflicts) == _CONFLICTS

    def after_conflict(self, version: str) -> Self:
        """Returns it after a write failed, since the Pod is not in this version any more."""
        if version in self.conflicts:  # the news of another is late
            return self
        return self._replace(conflicts=(*self.conflicts, version)[-_CONFLICTS:])

    def in_another_state(self) -> Self:
        """Returns it with nothing of what belonged to the state that its placeholder has left."""
        return self._replace(write_done=False, conflicts=(), rejection_cleared=False, lingers_until=0.0)
