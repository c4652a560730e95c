"""The Nodes whose kubelets reject Pods, and the Pods to which each such Node is closed.

kube-scheduler binds a Pod, and the kubelet checks the Pod once more before it starts a container. A
kubelet with a dead device plugin rejects every Pod within a second. The Pod's controller then makes
another Pod, for which Slurm picks the same idle node.

Either the Node or the Pod may be at fault. If a kubelet rejects Pods of one template, the Node is closed
to Pods that ask for the same, and stays open to all other Pods. If a kubelet rejects Pods that ask for
different things, the Node is closed to all Pods. A Deployment with a Pod that no kubelet admits costs a
few Pods for each Node, and closes no Node to other users.

The state is lost when the leader changes: the next leader needs as many rejections again.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from math import inf

from extender.record.placeholder import Placeholder
from extender.request.job_request import Request, without_pod
from extender.request.pod import Pod

_ALL: Hashable = None
"""Stands for all requests."""
_OF_THE_POD = frozenset(
    {
        *("AppArmor", "EmptyPodSharedPoolError", "InitContainerRestartPolicyForbidden"),
        *("PodFeatureUnsupported", "PodLevelResourcesNotSupported", "PodOSNotSupported"),
        *("PodOSSelectorNodeLabelDoesNotMatch", "SMTAlignmentError"),
        *("SupplementalGroupsPolicyNotSupported", "SysctlForbidden"),
    }
)
"""Reasons of the kubelet that name a mistake of the Pod. For all other reasons the Node may be at fault:
UnexpectedAdmissionError, OutOfcpu and the like, TopologyAffinityError, NodeAffinity, NodeShutdown,
Evicted (under the Node's pressure), VolumeAttachmentLimitExceeded, and later reasons. Source:
pkg/kubelet of Kubernetes 1.37 (lifecycle, cm, eviction, nodeshutdown, sysctl, volumemanager)."""
_MOST_CLOSED = 3
"""One Node in so many may be closed to all Pods. If more Nodes reject Pods, the Pods are more likely
wrong."""


def _kind_of(namespace: str, request: Request) -> Hashable:
    """Returns a key that is the same for Pods of one namespace that ask Slurm for the same. The Pods'
    constraints on Nodes do not count: the place of a Pod's volumes is one, and each Pod has its own."""
    return namespace, without_pod(request.job)


@dataclass(frozen=True, slots=True)
class Closure:
    """A Node that is closed to some Pods, or to all, for a while."""

    node: str
    to_all: bool
    until: float
    words: str
    """Words for the rejection and its consequence."""


@dataclass(slots=True)
class _Case:
    """The rejections by one kubelet of Pods that ask for the same, or of all Pods."""

    recent: list[tuple[float, Hashable]] = field(default_factory=list)
    """The rejections that count: the time and the kind of Pod of each."""
    pause: float = 0.0
    """How long the Node was closed the last time; 0: never."""
    closure: Closure | None = None
    """The last closure, which may be over."""

    @property
    def until(self) -> float:
        return -inf if self.closure is None else self.closure.until

    def matters(self, now: float, window: float) -> bool:
        """Tells whether the case has any consequence. For one more pause after a closure a single
        rejection closes the Node again, for longer."""
        counts = bool(self.recent) and now - self.recent[-1][0] < window
        return counts or now < self.until + self.pause


class RejectingNodes:
    """The Nodes that are closed because of their kubelets. Times are the ledger's clock, in seconds."""

    def __init__(self, enough: tuple[int, float], pauses: tuple[float, float]) -> None:
        """`enough`: how many rejections within how many seconds close a Node. `pauses`: for how long,
        the first time and at most."""
        self._enough, self._window = enough
        self._first, self._longest = pauses
        self._cases: dict[tuple[str, Hashable], _Case] = {}
        self._closed: dict[Hashable, frozenset[str]] = {}
        """By kind of Pod."""
        self.opens = inf
        """When the next Node is opened again; infinity if none is closed."""

    def __len__(self) -> int:
        """Returns the number of cases in memory."""
        return len(self._cases)

    @property
    def closures(self) -> tuple[Closure, ...]:
        """Returns the current closures, in the order of the first rejections."""
        known = ((kind, each.closure) for (_, kind), each in self._cases.items())
        return tuple(c for kind, c in known if c is not None and c.node in self._closed.get(kind, ()))

    def closed_to(self, namespace: str, request: Request) -> frozenset[str]:
        """Returns the Nodes that are closed to such Pods."""
        to_all = self._closed.get(_ALL, frozenset())
        if not self._closed:  # as nearly always
            return to_all
        return to_all | self._closed.get(_kind_of(namespace, request), frozenset())

    def pod_seen(self, record: Placeholder | None, pod: Pod, of: int, now: float) -> bool:
        """Takes a new version of a Pod; the record has the version before. Returns True if a Node was
        closed or opened. A Pod that ended before the leader saw it counts for nothing."""
        before = None if record is None else record.member(pod.uid)
        if before is None or pod.node is None:
            return False
        if pod.kubelet_rejection and not before.pod.finished:
            return self.rejected(pod, pod.node, of, now)
        return pod.started and not before.pod.started and self.started(pod, pod.node, now)

    def rejected(self, pod: Pod, node: str, of: int, now: float) -> bool:
        """Takes a Pod that its kubelet has rejected; `of` is the number of all Nodes. Returns True if a
        Node was closed."""
        self._cases = {key: c for key, c in self._cases.items() if c.matters(now, self._window)}
        kind, closes = _kind_of(pod.namespace, pod.request), False
        for each in self._concerned(pod, kind):
            case = self._cases.setdefault((node, each), _Case())
            if now < case.until:  # the Pod was on its way when the Node was closed
                continue
            case.recent = [one for one in case.recent if now - one[0] < self._window]
            case.recent.append((now, kind))
            if self._suffices(case, each, of, now):
                self._close(case, pod, node, each, now)
                closes = True
        self._count(now)
        return closes

    def started(self, pod: Pod, node: str, now: float) -> bool:
        """Takes a Pod that has started, so that the Node is no longer at fault. Returns True if that
        opens a Node."""
        if not self._cases:  # as nearly always
            return False
        kinds = _kind_of(pod.namespace, pod.request), _ALL
        cases = [self._cases.pop((node, kind), None) for kind in kinds]
        self._count(now)
        return any(each is not None and now < each.until for each in cases)

    def reopen(self, now: float) -> bool:
        """Opens the Nodes whose time has come. Returns True if there are any."""
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
        alike = len({each for _, each in case.recent}) == 1
        room = len(self._closed.get(_ALL, ())) < max(1, of // _MOST_CLOSED)
        return room and (known_for_it or not alike)

    def _close(self, case: _Case, pod: Pod, node: str, kind: Hashable, now: float) -> None:
        case.pause = min(self._longest, max(self._first, 2 * case.pause))
        whose = "Pods" if kind is _ALL else f"Pods like {pod.full_name}"
        many = f"{len(case.recent)} Pods" if len(case.recent) > 1 else "another Pod"
        words = (
            f"the kubelet rejected {many}, the last of them {pod.full_name}: {pod.kubelet_rejection}."
            f" The extender places no {whose} here for {case.pause:.0f} s, or until a Pod starts"
        )
        case.closure, case.recent = Closure(node, kind is _ALL, now + case.pause, words), []

    def _count(self, now: float) -> None:
        closed: dict[Hashable, set[str]] = {}
        live = [(key, case.until) for key, case in self._cases.items() if now < case.until]
        for (node, kind), _ in live:
            closed.setdefault(kind, set()).add(node)
        self._closed = {kind: frozenset(nodes) for kind, nodes in closed.items()}
        self.opens = min((until for _, until in live), default=inf)
