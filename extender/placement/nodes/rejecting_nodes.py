"""Nodes whose kubelets reject Pods, and the Pods to which the extender closes such a Node.

After kube-scheduler has bound a Pod, the kubelet checks the Pod again and may reject the Pod. A kubelet
with a dead device plugin rejects every Pod within a second. The Pod's controller then creates another
Pod, and Slurm picks the same idle node again.

Either the Node or the Pod may be at fault. If a kubelet rejects several Pods with the same requests, the
extender closes the Node to Pods with these requests. Other Pods may still use the Node. If a kubelet
rejects Pods of one owner with different requests, the extender closes the Node to the owner's Pods. If a
kubelet rejects Pods of several owners, the extender closes the Node to all Pods. So an owner of wrong
Pod templates loses a few Pods on each Node, but cannot close a Node to other owners.

A new leader starts without this state, and counts rejections from zero.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from extender.explain.cause import Cause, Kind
from extender.node_view.view import ClusterView
from extender.pod_request.job_request import Request, without_pod
from extender.pod_request.pod import Pod
from extender.record.placeholder import Placeholder

_ALL: Hashable = None
"""The kind that stands for all Pods."""
_OF_THE_POD = frozenset(
    {
        *("AppArmor", "EmptyPodSharedPoolError", "InitContainerRestartPolicyForbidden"),
        *("PodFeatureUnsupported", "PodLevelResourcesNotSupported", "PodOSNotSupported"),
        *("PodOSSelectorNodeLabelDoesNotMatch", "SMTAlignmentError"),
        *("SupplementalGroupsPolicyNotSupported", "SysctlForbidden"),
    }
)
"""Reasons for which the kubelet rejects a wrong Pod. For every other reason the Node may be at fault:
UnexpectedAdmissionError, OutOfcpu and other shortages, TopologyAffinityError, NodeAffinity,
NodeShutdown, Evicted (under the Node's pressure), VolumeAttachmentLimitExceeded, and reasons of later
releases. Source: pkg/kubelet of Kubernetes 1.37 (lifecycle, cm, eviction, nodeshutdown, sysctl,
volumemanager)."""
_CLOSED_SHARE = 3
"""At most a third of a partition's Nodes is closed to Pods of different kinds. If more Nodes reject
Pods, the Pods are probably at fault."""


def _kind_of(namespace: str, request: Request) -> Hashable:
    """Returns the kind of a Pod: the namespace and the requested job. Constraints on Nodes do not count,
    because each Pod of a template may have volumes in a different place. Comments do not count."""
    return namespace, replace(without_pod(request.job), comment=None), request.uncounted_gpus


def _owner_of(namespace: str, request: Request) -> Hashable:
    """Returns the kind of all Pods of an owner: the namespace and the Slurm user."""
    return namespace, request.job.user_id


def _devices(request: Request) -> Mapping[str, int]:
    """Returns the devices of a Pod, by GRES. For a GPU that Slurm does not count, the key is the name of
    the GPU's resource."""
    return dict.fromkeys(request.uncounted_gpus, 1) | dict(request.job.gres)


def _standing_for(slurm_nodes: Collection[str], view: ClusterView) -> set[str]:
    """Returns the names of the Kubernetes Nodes that stand for these Slurm nodes."""
    names = frozenset(slurm_nodes)
    return {name for name, node in view.nodes.items() if node.slurm_name in names}


class _Rejection(NamedTuple):
    time: float
    kind: Hashable
    """The kind of the rejected Pod. If the rejection counts for all Pods (`_ALL`), the kind is the Pod's
    owner."""
    devices: Mapping[str, int]
    """The devices of the rejected Pod."""

    def is_refuted_by(self, devices: Mapping[str, int]) -> bool:
        """Returns True if `devices` includes all devices of the rejected Pod. If a Pod with these
        devices starts on the Node, the start refutes the rejection."""
        return all(devices.get(name, 0) >= count for name, count in self.devices.items())


@dataclass(frozen=True, slots=True)
class Closure:
    """A Node that is closed to some or all Pods for a limited time."""

    node: str
    to_all: bool
    until: float
    cause: Cause
    """Cause that describes the rejections, and the Pods to which the Node is closed."""


@dataclass(slots=True)
class _Case:
    """Rejections by one kubelet that count together: of Pods of one kind, of the Pods of one owner, or
    of all Pods."""

    recent: list[_Rejection] = field(default_factory=list)
    """Rejections since the last closure."""
    causes: list[_Rejection] = field(default_factory=list)
    """Rejections that led to the last closure."""
    pause: float = 0.0
    """Length of the last closure in seconds; 0 before the first closure."""
    closure: Closure | None = None
    """The last closure, current or over."""

    @property
    def until(self) -> float:
        return -inf if self.closure is None else self.closure.until

    def matters(self, now: float, window: float) -> bool:
        """Returns True while the rejections have an effect. After a closure, a single rejection closes
        the Node again, for a longer time. This rule lasts as long as the closure lasted."""
        counts = bool(self.recent) and now - self.recent[-1].time < window
        return counts or now < self.until + self.pause

    def is_refuted_by(self, devices: Mapping[str, int]) -> bool:
        """Returns True if the start of a Pod with these devices refutes every rejection."""
        return all(each.is_refuted_by(devices) for each in (*self.recent, *self.causes))


class RejectingNodes:
    """Decides when a Node closes and opens. Times are seconds of the ledger's clock."""

    def __init__(self, enough: tuple[int, float], pauses: tuple[float, float]) -> None:
        """`enough` is the number of rejections before a closure, and the seconds within which rejections
        count. `pauses` has the seconds of the first closure and of the longest closure."""
        self._enough, self._window = enough
        self._first, self._longest = pauses
        self._cases: dict[tuple[str, Hashable], _Case] = {}
        self._closed: dict[Hashable, frozenset[str]] = {}
        """For each kind of Pods, the Nodes that are closed to these Pods."""
        self.opens = inf
        """Time at which the next Node opens; infinity if no Node is closed."""

    def __len__(self) -> int:
        """Returns the number of cases."""
        return len(self._cases)

    @property
    def closures(self) -> tuple[Closure, ...]:
        """Returns the current closures, in the order of the first rejections."""
        known = ((kind, each.closure) for (_, kind), each in self._cases.items())
        return tuple(c for kind, c in known if c is not None and c.node in self._closed.get(kind, ()))

    def closed_to(self, namespace: str, request: Request) -> frozenset[str]:
        """Returns the Nodes that are closed to Pods of a namespace with a request."""
        if not self._closed:  # the usual case
            return frozenset()
        kinds = _kind_of(namespace, request), _owner_of(namespace, request), _ALL
        return frozenset[str]().union(*(self._closed.get(kind, ()) for kind in kinds))

    def pod_seen(self, record: Placeholder | None, pod: Pod, view: ClusterView, now: float) -> bool:
        """Compares a new version of a Pod with the record's version. Returns True if a Node was closed
        or opened. Ignores Pods without an earlier version."""
        before = None if record is None else record.member(pod.uid)
        if before is None or pod.life.node is None:
            return False
        if pod.life.kubelet_rejection and not before.pod.life.finished:
            return self.rejected(pod, pod.life.node, view, now)
        return pod.life.started and not before.pod.life.started and self.started(pod, pod.life.node, now)

    def rejected(self, pod: Pod, node: str, view: ClusterView, now: float) -> bool:
        """Counts a Pod that the kubelet has rejected. Returns True if a Node was closed."""
        self._cases = {key: c for key, c in self._cases.items() if c.matters(now, self._window)}
        closes, devices = False, _devices(pod.request)
        for each, kind in self._concerned(pod):
            case = self._cases.setdefault((node, each), _Case())
            if now < case.until:  # the Pod was placed before the closure
                continue
            case.recent = [one for one in case.recent if now - one.time < self._window]
            case.recent.append(_Rejection(now, kind, devices))
            if self._suffices(case, each, now) and (each == kind or self._has_room(node, each, view)):
                self._close(case, pod, node, each, now)
                closes = True
        self._count(now)
        return closes

    def started(self, pod: Pod, node: str, now: float) -> bool:
        """Notes that a Pod has started on a Node, and deletes the rejections that the start refutes. The
        start refutes the rejections of Pods of this kind. The start refutes the rejections of the
        owner's Pods, and of all Pods, only if the Pod has the devices of each rejected Pod. A Pod
        without GPUs also starts beside a dead device plugin. Returns True if the Node was closed."""
        of, devices = (pod.namespace, pod.request), _devices(pod.request)
        keys = [(node, kind) for kind in (_kind_of(*of), _owner_of(*of), _ALL)]
        refuted = [key for key in keys if key in self._cases and self._cases[key].is_refuted_by(devices)]
        cases = [self._cases.pop(key) for key in refuted]
        if cases:
            self._count(now)
        return any(now < each.until for each in cases)

    def reopen(self, now: float) -> bool:
        """Opens the Nodes whose closures are over. Returns True if at least one closure is over."""
        due = self.opens <= now
        if due:
            self._count(now)
        return due

    @staticmethod
    def _concerned(pod: Pod) -> Iterator[tuple[Hashable, Hashable]]:
        """Yields the kinds of Pods that a rejection concerns. Each kind comes with the narrower kind
        under which the rejection is counted. A Node is closed to an owner only after rejections of two
        kinds of Pods, and to all Pods only after rejections of two owners."""
        of = (pod.namespace, pod.request)
        kind, owner = _kind_of(*of), _owner_of(*of)
        yield kind, kind
        if pod.life.kubelet_rejection.partition(":")[0] not in _OF_THE_POD:
            yield owner, kind
            yield _ALL, owner

    def _suffices(self, case: _Case, key: Hashable, now: float) -> bool:
        if now < case.until + case.pause:
            return True
        alike = len({each.kind for each in case.recent}) == 1
        return len(case.recent) >= self._enough and (not alike or case.recent[0].kind == key)

    def _has_room(self, node: str, kind: Hashable, view: ClusterView) -> bool:
        """Returns True if one more Node of each of the Node's partitions may be closed to Pods of
        different kinds. For a Node without a partition, the limit counts all Nodes."""
        own, closed = view.nodes.get(node), self._closed.get(kind, frozenset())
        of = [each.nodes for each in view.partitions.values() if own and own.slurm_name in each.nodes]
        return all(
            len(closed & nodes) < max(1, len(nodes) // _CLOSED_SHARE)
            for nodes in [_standing_for(each, view) for each in of] or [set(view.nodes)]
        )

    def _close(self, case: _Case, pod: Pod, node: str, kind: Hashable, now: float) -> None:
        case.pause = min(self._longest, max(self._first, 2 * case.pause))
        cause = Cause.of(
            Kind.KUBELET_REJECTS_PODS,
            number=len(case.recent),
            last=pod.full_name,
            message=pod.life.kubelet_rejection,
            pause_s=case.pause,
            closed_to=self._closed_to(pod, kind),
        )
        case.closure = Closure(node, kind is _ALL, now + case.pause, cause)
        case.causes, case.recent = case.recent, []

    @staticmethod
    def _closed_to(pod: Pod, kind: Hashable) -> Cause:
        """Returns a description of the Pods of a kind."""
        if kind == _kind_of(pod.namespace, pod.request):
            return Cause.of(Kind.PODS_LIKE, pod=pod.full_name)
        if kind is _ALL:
            return Cause.of(Kind.ALL_PODS)
        return Cause.of(Kind.PODS_OF_OWNER, namespace=pod.namespace, user=pod.request.job.user_id)

    def _count(self, now: float) -> None:
        closed: dict[Hashable, set[str]] = {}
        live = [(key, case.until) for key, case in self._cases.items() if now < case.until]
        for (node, kind), _ in live:
            closed.setdefault(kind, set()).add(node)
        self._closed = {kind: frozenset(nodes) for kind, nodes in closed.items()}
        self.opens = min((until for _, until in live), default=inf)
