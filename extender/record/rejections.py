"""The Nodes that kube-scheduler rejected for a Pod, and the requests that Slurm rejected."""

from math import inf
from typing import NamedTuple

from extender.record.why_invalid import WhyInvalid

NO_OFFER: tuple[tuple[str, ...], float] = ((), 0.0)


class Rejections(NamedTuple):
    """Nodes rejected by kube-scheduler, requests rejected by Slurm, and failed attempts."""

    nodes: tuple[tuple[str, float], ...] = ()
    """Nodes that kube-scheduler rejected for the Pod, each with the time at which the rejection
    expires."""
    offered: tuple[tuple[str, ...], float] = NO_OFFER
    """Nodes that kube-scheduler offered instead of Slurm's Node, and the time at which the offer
    expires. A thousand Nodes are possible, so the names are compressed (`FeasibleNodes.taken`)."""
    waiting_for_departures: bool = False
    """True if kube-scheduler rejected the Node while other Pods were leaving the Node. Such a rejection
    does not end the attempt."""
    rejection_counts: bool = False
    """True after kube-scheduler was asked again about the allocated Node. Then the next rejection ends
    the attempt."""
    asks_first: bool = False
    """True after a failed attempt. Then kube-scheduler must find a Node before the extender requests
    another job."""
    in_a_row: int = 0
    """Number of attempts in a row that failed because kube-scheduler bound no Pod and offered no
    Node."""
    rests_until: float = 0.0
    """Time from which the Pod may wait for a turn again, after the attempts that `in_a_row` counts."""
    because_of_pods: int = 0
    """Number of attempts that failed because of other Pods on the Node. These attempts do not make the
    pauses longer."""
    forbidden_because: WhyInvalid | None = None
    """Reason why the Pod counts as invalid after its job has ended. Reset when the Pod's request
    changes."""
    asks_from: float = -inf
    """Time before which the extender does not request a job again. Set if Slurm rejects the Pod, the
    user changes the Pod, and Slurm rejects the Pod once more."""
    spread_ignored: bool = False
    """True if the ledger leaves topology spread to kube-scheduler (`PodsApart`)."""

    @property
    def invalid_until(self) -> float:
        """Returns the time at which the Pod may be placed again; infinity if there is no such time."""
        return inf if self.forbidden_because is None else self.forbidden_because.until
