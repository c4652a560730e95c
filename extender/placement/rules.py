"""The numbers that placement goes by, all in seconds unless a name says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.placement.cluster import ClusterView
from extender.placement.events import Remedy
from extender.placement.identity import JobIdRange


@dataclass(frozen=True, slots=True)
class Rules:
    cluster: str = "kubernetes"
    """Names this Kubernetes cluster in every job's key: two clusters may share a Slurm."""
    ids: JobIdRange = field(default_factory=JobIdRange)
    window: int = 1000
    """Placeholders of ours that may wait in one partition at a time; Slurm's MaxJobCount is 10,000."""
    fast_path: bool = True
    """Whether a job may be asked for at once (job/allocate) where nothing of ours waits."""
    fast_path_rest: float = 1.0
    """How long a partition that had no room is left in peace; at first also what is refused for now."""
    settle: float = 1.0
    """How long a job may wait in Slurm before its Pod is told why: most start within that."""
    glance: float = 0.02
    """When a job that is about to run is looked at again at the earliest."""
    telling_interval: float = 0.02
    """Between two Pods that are told that they are in line: there may be 50,000 of them."""
    reason_interval: float = 10.0
    """How often a waiting job is asked for its reason."""
    unbound_deadline: float = 30.0
    """How long an allocation may stay unbound before it is given back."""
    nominate_from: int = 1500
    """With fewer Nodes kube-scheduler looks at all of them in less time than naming one takes."""
    doubt: float = 30.0
    """How long a restarted slurmctld has to start a job again that it forgot to have started."""
    saved: float = 10.0
    """When a slurmctld that is killed remembers what it did: it forgets about 5 s."""
    verified: float = 60.0
    """Within how long after a start the jobs are read that were only seen to run: not all at once."""
    avoid: float = 60.0
    """How long a Node that a Pod could not be bound to is excluded for that Pod, unless another Pod of
    ours leaves it before."""
    offer: float = 60.0
    """How long only the Nodes count that kube-scheduler offered instead."""
    recancel: float = 5.0
    """When a cancellation that shows no effect is repeated."""
    reevict: float = 60.0
    """When an eviction that shows no effect is repeated."""
    tombstone: float = 60.0
    """How long a cancelled job is watched: a killed slurmctld may bring it back."""
    deletions_a_minute: int = 500
    """How many Pods may be deleted, and jobs be cancelled of which nobody has seen a Pod, in any minute:
    a tenth of a large cluster's Nodes."""
    confirmations: int = 3
    """How many polls in a row must miss a job before it counts as lost."""

    def delay(self, remedy: Remedy, failures: int) -> float:
        """Returns how long to wait before the next try, after so many failures in a row."""
        base, longest = {
            Remedy.LATER: (1.0, 30.0),
            Remedy.NO_ROOM: (1.0, 30.0),
            Remedy.OPERATOR: (2.0, 15.0),
        }.get(remedy, (0.1, 5.0))
        return float(min(longest, base * 2 ** min(failures, 10)))


@dataclass(frozen=True, slots=True)
class Moment:
    """What a decision is made with besides the record itself: when, by which rules, on which nodes."""

    now: float
    rules: Rules
    view: ClusterView
