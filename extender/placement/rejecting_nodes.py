"""Nodes whose kubelets reject Pods, and the Pods to which the extender closes such a Node.

After kube-scheduler has bound a Pod, the kubelet checks the Pod again and may reject the Pod. A kubelet
with a dead device plugin rejects every Pod within a second. The Pod's controller then creates another
Pod, and Slurm picks the same idle node again.

Either the Node or the Pod may be at fault. If a kubelet rejects several Pods with the same requests, the
extender closes the Node to Pods with the same requests, and other Pods may still use the Node. If a
kubelet rejects Pods with different requests, the extender closes the Node to all Pods. So a Deployment
with a wrong Pod template loses a few Pods on each Node, and closes no Node to other users.

A new leader starts without this state, and counts rejections from zero.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from extender.record.placeholder import Placeholder
from extender.request.job_request import Request, without_pod
from extender.request.pod import Pod

_ALL: Hashable = None
"""The kind of all Pods together."""
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
"""At most a third of the Nodes is closed to all Pods. If more Nodes reject Pods, the Pods are probably
at fault."""


def _kind_of(namespace: str, request: Request) -> Hashable:
    """Returns the kind of a Pod: the namespace and the requested job. Constraints on Nodes do not count,
    because each Pod of a template may have volumes in a different place. Comments do not count."""
    return namespace, replace(without_pod(request.job), comment=None), request.uncounted_gpus


def _devices(request: Request) -> Mapping[str, int]:
    """Returns the devices of a Pod, by GRES. A GPU that Slurm does not count has its resource's name."""
    return dict.fromkeys(request.uncounted_gpus, 1) | dict(request.job.gres)


class _Rejection(NamedTuple):
    time: float
    kind: Hashable
    """The kind of the rejected Pod."""
    devices: Mapping[str, int]
    """The devices of the rejected Pod."""

    def is_refuted_by(self, devices: Mapping[str, int]) -> bool:
        """Returns True if a Pod that starts with these devices has all devices of the rejected Pod."""
        return all(devices.get(name, 0) >= count for name, count in self.devices.items())


@dataclass(frozen=True, slots=True)
class Closure:
    """A Node that is closed to some or all Pods for a limited time."""

    node: str
    to_all: bool
    until: float
    words: str
    """Message about the rejections and the consequence."""


@dataclass(slots=True)
class _Case:
    """Rejections by one kubelet: of Pods of one kind, or of all Pods."""

    recent: list[_Rejection] = field(default_factory=list)
    """Rejections since the last closure."""
    causes: list[_Rejection] = field(default_factory=list)
    """Rejections that led to the last closure."""
    pause: float = 0.0
    """Seconds of the last closure; 0 before the first closure."""
    closure: Closure | None = None
    """The last closure, current or over."""

    @property
    def until(self) -> float:
        return -inf if self.closure is None else self.closure.until

    def matters(self, now: float, window: float) -> bool:
        """Returns True while the rejections have an effect. For one more pause after a closure, a single
        rejection closes the Node again, and for longer."""
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
        """Nodes by the kind of Pod to which the Nodes are closed."""
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
        to_all = self._closed.get(_ALL, frozenset())
        if not self._closed:  # the usual case
            return to_all
        return to_all | self._closed.get(_kind_of(namespace, request), frozenset())

    def pod_seen(self, record: Placeholder | None, pod: Pod, of: int, now: float) -> bool:
        """Compares a new version of a Pod with the record's version; `of` is the number of all Nodes.
        Returns True if a Node was closed or opened. Ignores Pods without an earlier version."""
        before = None if record is None else record.member(pod.uid)
        if before is None or pod.node is None:
            return False
        if pod.kubelet_rejection and not before.pod.finished:
            return self.rejected(pod, pod.node, of, now)
        return pod.started and not before.pod.started and self.started(pod, pod.node, now)

    def rejected(self, pod: Pod, node: str, of: int, now: float) -> bool:
        """Counts a Pod that the kubelet has rejected; `of` is the number of all Nodes. Returns True if a
        Node was closed."""
        self._cases = {key: c for key, c in self._cases.items() if c.matters(now, self._window)}
        kind, closes = _kind_of(pod.namespace, pod.request), False
        for each in self._concerned(pod, kind):
            case = self._cases.setdefault((node, each), _Case())
            if now < case.until:  # the Pod was placed before the closure
                continue
            case.recent = [one for one in case.recent if now - one.time < self._window]
            case.recent.append(_Rejection(now, kind, _devices(pod.request)))
            if self._suffices(case, each, of, now):
                self._close(case, pod, node, each, now)
                closes = True
        self._count(now)
        return closes

    def started(self, pod: Pod, node: str, now: float) -> bool:
        """Deletes the Node's rejections of Pods of this kind after a Pod has started there. Deletes the
        rejections of all Pods if the Pod has the devices of each rejected Pod: a Pod without GPUs also
        starts beside a dead device plugin. Returns True if the Node was closed."""
        keys = [(node, kind) for kind in (_kind_of(pod.namespace, pod.request), _ALL)]
        devices = _devices(pod.request)
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
    def _concerned(pod: Pod, kind: Hashable) -> Iterator[Hashable]:
        yield kind
        if pod.kubelet_rejection.partition(":")[0] not in _OF_THE_POD:
            yield _ALL

    def _suffices(self, case: _Case, kind: Hashable, of: int, now: float) -> bool:
        known_for_it = now < case.until + case.pause
        if not known_for_it and len(case.recent) < self._enough:
            return False
        if kind is not _ALL:
            return True
        alike = len({each.kind for each in case.recent}) == 1
        room = len(self._closed.get(_ALL, ())) < max(1, of // _CLOSED_SHARE)
        return room and (known_for_it or not alike)

    def _close(self, case: _Case, pod: Pod, node: str, kind: Hashable, now: float) -> None:
        case.pause = min(self._longest, max(self._first, 2 * case.pause))
        whose = "Pods" if kind is _ALL else f"Pods like {pod.full_name}"
        many = f"{len(case.recent)} Pods" if len(case.recent) > 1 else "another Pod"
        words = (
            f"the kubelet rejected {many}, the last of them {pod.full_name}: {pod.kubelet_rejection}."
            f" The extender places no {whose} here for {case.pause:.0f} s, or until a Pod starts"
        )
        case.closure = Closure(node, kind is _ALL, now + case.pause, words)
        case.causes, case.recent = case.recent, []

    def _count(self, now: float) -> None:
        closed: dict[Hashable, set[str]] = {}
        live = [(key, case.until) for key, case in self._cases.items() if now < case.until]
        for (node, kind), _ in live:
            closed.setdefault(kind, set()).add(node)
        self._closed = {kind: frozenset(nodes) for kind, nodes in closed.items()}
        self.opens = min((until for _, until in live), default=inf)
