"""The numbers that placement goes by, all in seconds unless a name says otherwise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from extender.cluster.equipment import Equipment
from extender.cluster.view import ClusterView
from extender.record.events import Remedy
from extender.request.grace_period import GraceRule
from extender.request.job_request import Request
from extender.request.node_constraints import NodeConstraints
from extender.request.pod_constraints import ClosedNodes, PodConstraints
from slurm_client.rights import UserRights
from wellknown.job_key import JobIdRange
from wellknown.names import DEFAULT_PREFIX


@dataclass(frozen=True, slots=True)
class PlacementConfig:
    cluster: str = "kubernetes"
    """Names this Kubernetes cluster in every job's key: two clusters may share a Slurm."""
    ids: JobIdRange = field(default_factory=JobIdRange)
    window: int = 1000
    """Placeholders of ours that may compete for one partition's nodes at a time."""
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
    telling_again: float = 1800.0
    """How often a Pod's author is told again why it waits: kube-apiserver forgets Events in an hour."""
    reason_interval: float = 10.0
    """How often a waiting job is asked for its reason."""
    unbound_deadline: float = 30.0
    """How long an allocation may stay unbound before it is given back."""
    volume_deadline: float = 630.0
    """The same while a volume is being made on its Node: for as long as kube-scheduler waits for one."""
    leaves_within: float = GraceRule().leaves_within
    """How long a Pod that is leaving a Node, or what an earlier leader said of containers that outlive
    one, is waited for (`GraceRule`)."""
    hears_within: float = 3.0
    """How long after a job's start kube-scheduler may refuse its Node for a Pod that has left it."""
    nominate_from: int = 1500
    """With fewer Nodes kube-scheduler looks at all of them in less time than naming one takes."""
    doubt: float = 30.0
    """How long a restarted slurmctld has to start a job again that it forgot to have started."""
    saved: float = 10.0
    """When a slurmctld that is killed remembers what it did: it forgets about 5 s."""
    verified: float = 60.0
    """Within how long after a start the jobs are read that were only seen to run: not all at once."""
    annotation_prefix: str = DEFAULT_PREFIX
    """What the annotations are called that Pods' authors are told of."""
    mend: float = 600.0
    """How long a Pod waits after Slurm made another job of what was asked for: each try is one more."""
    retry: tuple[float, float] = (120.0, 1800.0)
    """How long what Slurm refused is not asked for again: the first time, and at most (`Retries`)."""
    retry_touched: float = 10.0
    """The same once its Pod was annotated: somebody may do that all the time."""
    avoid: float = 60.0
    """How long a Node that a Pod could not be bound to is excluded for that Pod, unless another Pod of
    ours leaves it before."""
    kubelet_rejections: tuple[int, float] = (3, 60.0)
    """Number of Pods that a kubelet rejects before its Node is closed, and within which time."""
    closed_by_kubelet: tuple[float, float] = (60.0, 1800.0)
    """How long such a Node is closed: the first time, and at most; each time in a row twice as long."""
    offer: float = 60.0
    """How long only the Nodes count that kube-scheduler offered instead."""
    unbindable: tuple[float, float] = (30.0, 1800.0)
    """How long no job is asked for after kube-scheduler has refused every Node: the first time, and at
    most; each time in a row twice as long."""
    recancel: float = 5.0
    """When a cancellation that shows no effect is repeated."""
    reevict: float = 60.0
    """When an eviction that shows no effect is repeated."""
    renote: float = 10.0
    """When the id of its job is written onto a Pod again, at the earliest: somebody may overwrite it."""
    tombstone: float = 60.0
    """How long a cancelled job is watched: a killed slurmctld may bring it back."""
    evictions_per_minute: int = 500
    """How many Pods may be deleted because of an end that may be a mistake, and jobs be cancelled of
    which nobody has seen a Pod, in any minute: a tenth of a large cluster's Nodes."""
    confirmations: int = 3
    """How many polls in a row must miss a job before it counts as lost."""

    def rest_unbindable(self, times: int) -> float:
        """Returns how long to wait after kube-scheduler refused every Node so many times in a row."""
        first, longest = self.unbindable
        return min(longest, first * 2.0 ** min(times - 1, 20)) if times > 0 else 0.0

    def delay(self, remedy: Remedy, failures: int) -> float:
        """Returns how long to wait before the next try, after so many failures in a row."""
        base, longest = {
            Remedy.LATER: (1.0, 30.0),
            Remedy.NO_ROOM: (1.0, 30.0),
            Remedy.OPERATOR: (2.0, 15.0),
        }.get(remedy, (0.1, 5.0))
        return float(min(longest, base * 2 ** min(failures, 10)))


@dataclass(frozen=True, slots=True)
class Context:
    """What a decision is made with besides the record itself: when, by which rules, on which nodes."""

    now: float
    rules: PlacementConfig
    view: ClusterView
    equipment: Mapping[str, Equipment] = field(default_factory=dict)
    """What Slurm's nodes have, by partition, as far as that is to be told."""
    rights: UserRights | None = None
    """What the job's user may ask for, as far as that is to be told."""
    rejecting: Callable[[str, Request], frozenset[str]] = lambda *_: frozenset()
    """Returns the Nodes that are closed to a namespace's Pods with a request because the kubelets there
    reject Pods."""
    closed_by_pods: Callable[[PodConstraints, NodeConstraints], ClosedNodes] = lambda *_: ClosedNodes()
    """Returns the Nodes that placed Pods close to a Pod."""
