"""Settings of placement, in seconds unless a name says otherwise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from extender.node_view.node_hardware import NodeHardware
from extender.node_view.view import ClusterView
from extender.pod_request.constraints.node_constraints import NodeConstraints
from extender.pod_request.constraints.pod_constraints import ClosedNodes, PodConstraints
from extender.pod_request.grace_period import GraceRule
from extender.pod_request.job_request import Request
from extender.record.events import Remedy
from slurm_client.rights import UserRights
from wellknown.job_key import JobIdRange
from wellknown.names import DEFAULT_PREFIX
from wellknown.pauses import Pauses

_PAUSES: Mapping[Remedy, Pauses] = {
    Remedy.LATER: Pauses(1.0, 30.0),
    Remedy.NO_ROOM: Pauses(1.0, 30.0),
    Remedy.OPERATOR: Pauses(2.0, 15.0),
}
_OTHER_PAUSES = Pauses(0.1, 5.0)
_UNBINDABLE = Pauses(30.0, 1800.0)


@dataclass(frozen=True, slots=True)
class PlacementConfig:
    cluster: str = "kubernetes"
    """Name of this Kubernetes cluster in the key of every job: two clusters may share a Slurm."""
    ids: JobIdRange = field(default_factory=JobIdRange)
    window: int = 1000
    """Number of placeholders that may compete for the nodes of one partition at a time."""
    fast_path: bool = True
    """True if job/allocate may ask for a job while no other placeholder waits."""
    fast_path_rest: float = 1.0
    """Pause before the next request in a full partition, and first pause after a temporary rejection."""
    report_after: float = 1.0
    """Time after which the extender reports on the Pod why the job waits: most jobs start earlier."""
    shortest_read_pause: float = 0.02
    """Shortest pause before the extender reads a job again shortly before the job's start."""
    in_line_report_pause: float = 0.02
    """Pause between two reports to Pods that they are in line: 50,000 Pods may wait."""
    report_interval: float = 1800.0
    """Interval at which the reason for waiting is reported again: Events expire after an hour."""
    reason_interval: float = 10.0
    """Interval at which the extender reads the reason of a waiting job."""
    unbound_deadline: float = 30.0
    """Time for which an allocation may stay unbound before the extender gives the allocation back."""
    volume_deadline: float = 630.0
    """The same while a volume is provisioned on the Node: the time limit of kube-scheduler."""
    leaves_within: float = GraceRule().leaves_within
    """Longest time to wait for a terminating Pod on a Node, or for containers that outlive a Pod by an
    earlier leader's report (`GraceRule`)."""
    nominate_from: int = 1500
    """Number of Nodes from which the extender nominates a Node. Below, kube-scheduler filters all Nodes
    faster than a nomination takes."""
    restart_wait: float = 30.0
    """Time for a restarted slurmctld to start a job again whose start slurmctld has forgotten."""
    slurmctld_save_time: float = 10.0
    """Age from which a killed slurmctld remembers a change: slurmctld forgets about 5 s."""
    recovery_read_spread: float = 60.0
    """Time after a start over which the extender spreads the reads of jobs with a known state only."""
    annotation_prefix: str = DEFAULT_PREFIX
    """Prefix of the annotations in messages to users."""
    altered_job_pause: float = 600.0
    """Pause after Slurm made another job than requested: each try costs one more job."""
    retry: tuple[float, float] = (120.0, 1800.0)
    """First and longest pause before the extender repeats a rejected request (`Retries`)."""
    retry_touched: float = 10.0
    """The same after an annotation of the Pod: a user may annotate a Pod all the time."""
    node_exclusion: float = 60.0
    """Time of a Node's exclusion after a failed binding, unless another placed Pod leaves the Node."""
    kubelet_rejections: tuple[int, float] = (3, 60.0)
    """Number of Pods rejected by a kubelet before the Node is closed, and the period that counts."""
    closed_by_kubelet: tuple[float, float] = (60.0, 1800.0)
    """First and longest time for which such a Node is closed. The time doubles in a row."""
    offer_validity: float = 60.0
    """Time for which only the Nodes of kube-scheduler's last offer count."""
    unbindable: Pauses = _UNBINDABLE
    """First and longest pause after kube-scheduler has rejected every Node. The pause doubles."""
    recancel: float = 5.0
    """Pause before a cancellation without effect is repeated."""
    reevict: float = 60.0
    """Pause before an eviction without effect is repeated."""
    job_id_rewrite_pause: float = 10.0
    """Shortest pause before a job id is written onto a Pod again: another client may change the id."""
    tombstone: float = 60.0
    """Time for which the extender watches a cancelled job: a killed slurmctld may restore the job."""
    evictions_per_minute: int = 500
    """Number of evictions in any minute because of ends that may be mistakes, together with
    cancellations of jobs without a seen Pod: a tenth of a large cluster's Nodes."""
    confirmations: int = 3
    """Number of polls in a row without a job before the job counts as lost."""

    def rest_unbindable(self, times: int) -> float:
        """Returns the pause after kube-scheduler rejected every Node so many times in a row."""
        return self.unbindable.after(times - 1) if times > 0 else 0.0

    def delay(self, remedy: Remedy, failures: int) -> float:
        """Returns the pause before the next try after so many failures in a row."""
        return _PAUSES.get(remedy, _OTHER_PAUSES).after(failures)


@dataclass(frozen=True, slots=True)
class Context:
    """Input of a decision besides the record: the time, the settings, and the Nodes."""

    now: float
    rules: PlacementConfig
    view: ClusterView
    hardware: Mapping[str, NodeHardware] = field(default_factory=dict)
    """Hardware of Slurm's nodes by partition, if a message needs the hardware."""
    rights: UserRights | None = None
    """Rights of the job's user, if a message needs the rights."""
    rejecting: Callable[[str, Request], frozenset[str]] = lambda *_: frozenset()
    """Returns the Nodes closed to a namespace's Pods with a request after rejections by kubelets."""
    closed_by_pods: Callable[[PodConstraints, NodeConstraints], ClosedNodes] = lambda *_: ClosedNodes()
    """Returns the Nodes that placed Pods close to a Pod."""
