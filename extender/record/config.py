"""Settings of the placement of Pods. Times are in seconds, unless the name of a setting says
otherwise."""

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
    """Name of this Kubernetes cluster in the key of every job. The name is needed because two clusters
    may share a Slurm."""
    ids: JobIdRange = field(default_factory=JobIdRange)
    window: int = 1000
    """Number of placeholders (jobs for Pods) that may compete for the nodes of one partition at a
    time."""
    fast_path: bool = True
    """True if the extender may request a job by slurmrestd's job/allocate while no other placeholder
    waits. Slurm then grants the job at once, or rejects the job."""
    fast_path_rest: float = 1.0
    """Pause before the next request by job/allocate in a full partition. Also the first pause after
    Slurm has rejected a job for now."""
    report_after: float = 1.0
    """Time after which the extender reports on the Pod why the job waits. Most jobs start earlier, and
    need no report."""
    shortest_read_pause: float = 0.02
    """Shortest pause before the extender reads a job again if the job is about to start."""
    in_line_report_pause: float = 0.02
    """Pause between two reports to waiting Pods. The pause limits the number of writes, because 50,000
    Pods may wait."""
    report_interval: float = 1800.0
    """Interval at which the extender repeats the report why a Pod waits. The report is repeated because
    Events expire after an hour."""
    reason_interval: float = 10.0
    """Interval at which the extender reads from Slurm why a job waits."""
    unbound_deadline: float = 30.0
    """Time that kube-scheduler has to bind a Pod to its allocation. After this time, the extender gives
    the allocation back to Slurm."""
    volume_deadline: float = 630.0
    """Time that kube-scheduler has to bind a Pod while a volume for the Pod is provisioned on the Node.
    kube-scheduler itself waits up to `bindTimeoutSeconds` (by default 600 s) for the volume."""
    leaves_within: float = GraceRule().leaves_within
    """Longest time to wait for a terminating Pod on a Node (`GraceRule`). Also the longest time to wait
    for containers that outlive their Pod, if an earlier leader has written about the containers into the
    job's comment."""
    nominate_from: int = 1500
    """Number of Nodes from which the extender writes the granted Node as the Pod's nominated Node. In a
    smaller cluster, kube-scheduler filters all Nodes in less time than this write takes."""
    restart_wait: float = 30.0
    """Time for which the extender waits until a restarted slurmctld starts a job again. A killed
    slurmctld may have forgotten the first start of the job."""
    slurmctld_save_time: float = 10.0
    """A change in Slurm that is older than this time survives a kill of slurmctld. A killed slurmctld
    forgets the changes of approximately the last 5 s."""
    recovery_read_spread: float = 60.0
    """After a start, the extender knows only the state of some jobs, and must still read these jobs. The
    extender spreads the reads over this time."""
    annotation_prefix: str = DEFAULT_PREFIX
    """Prefix of the annotations in messages to users."""
    altered_job_pause: float = 600.0
    """Pause before the next request, after Slurm has made a job that differs from the request. The pause
    is long because each request creates a job that the extender must end."""
    retry: tuple[float, float] = (120.0, 1800.0)
    """First and longest pause before the extender repeats a rejected request (`Retries`)."""
    retry_touched: float = 10.0
    """Pause before the extender repeats a rejected request after the user has annotated the Pod. Without
    the pause, each annotation would cause a request."""
    node_exclusion: float = 60.0
    """Time for which a Pod's jobs avoid a Node after the Pod could not be bound there. If another placed
    Pod leaves the Node, this time ends earlier."""
    kubelet_rejections: tuple[int, float] = (3, 60.0)
    """First: the number of Pods that a kubelet rejects before the extender closes the Node. Second: the
    period in which these rejections count."""
    closed_by_kubelet: tuple[float, float] = (60.0, 1800.0)
    """First and longest time for which the extender closes a Node whose kubelet rejects Pods. Each
    further closure lasts twice as long as the closure before."""
    offer_validity: float = 60.0
    """Time for which the extender requests a Pod's jobs only on the Nodes that kube-scheduler has
    offered instead of Slurm's Node."""
    unbindable: Pauses = _UNBINDABLE
    """First and longest pause after kube-scheduler has rejected every Node. Each further pause is twice
    as long."""
    recancel: float = 5.0
    """Pause before the extender repeats a cancellation that had no effect."""
    reevict: float = 60.0
    """Pause before the extender repeats an eviction that had no effect."""
    job_id_rewrite_pause: float = 10.0
    """Shortest pause before the extender writes a job id onto a Pod again. Another client may change the
    id again and again."""
    tombstone: float = 60.0
    """Time for which the extender watches a cancelled job, because a killed slurmctld may restore the
    job."""
    evictions_per_minute: int = 500
    """Maximum number of deletions in any minute, among the deletions that may be mistakes. Such
    deletions are evictions after an unforeseen end of a job, and cancellations of jobs whose Pods the
    extender has never seen. The default is a tenth of a large cluster's Nodes."""
    confirmations: int = 3
    """A job counts as lost after this number of polls in a row in which Slurm did not know the job."""

    def rest_unbindable(self, times: int) -> float:
        """Returns the pause after kube-scheduler has rejected every Node `times` times in a row."""
        return self.unbindable.after(times - 1) if times > 0 else 0.0

    def delay(self, remedy: Remedy, failures: int) -> float:
        """Returns the pause before the next try, after this number of failures in a row."""
        return _PAUSES.get(remedy, _OTHER_PAUSES).after(failures)


@dataclass(frozen=True, slots=True)
class Context:
    """Input of a decision besides the record: the time, the settings, and the Nodes."""

    now: float
    rules: PlacementConfig
    view: ClusterView
    hardware: Mapping[str, NodeHardware] = field(default_factory=dict)
    """Hardware of Slurm's nodes, by partition. Empty if no message needs the hardware."""
    rights: UserRights | None = None
    """Slurm's rights of the job's user. None if no message needs the rights."""
    rejecting: Callable[[str, Request], frozenset[str]] = lambda *_: frozenset()
    """Takes a namespace and a request. Returns the Nodes that the extender closes to such Pods because
    kubelets rejected similar Pods."""
    closed_by_pods: Callable[[PodConstraints, NodeConstraints], ClosedNodes] = lambda *_: ClosedNodes()
    """Returns the Nodes that a Pod cannot use because of placed Pods."""
