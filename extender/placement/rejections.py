"""What kube-scheduler has rejected of what Slurm gave a workload, and what follows for the next job."""

from __future__ import annotations

from typing import NamedTuple, Self

NO_OFFER: tuple[tuple[str, ...], float] = ((), 0.0)


class Rejections(NamedTuple):
    """The Nodes that kube-scheduler has rejected, and how often an attempt was in vain."""

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

    def current(self, now: float) -> Self:
        """Returns it without what does not count any more."""
        if not self.nodes and not self.offered[1]:
            return self
        nodes = tuple(each for each in self.nodes if each[1] > now)
        return self._replace(nodes=nodes, offered=self.offered if self.offered[1] > now else NO_OFFER)
