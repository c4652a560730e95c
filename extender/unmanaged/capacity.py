"""Computes, for each Node, the capacity that Slurm's jobs leave to unmanaged Pods. The extender does not
manage an unmanaged Pod, so Slurm knows nothing of the Pod unless the extender adopts the Pod
(`adoption`).

The free capacity of a Node is the capacity of the Slurm node, less Slurm's allocations, less the
requests of unmanaged Pods on the Node. kube-scheduler alone decides about resources that Slurm does not
count, and about Nodes without a Slurm node.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from math import inf
from typing import Self

from extender.pod_request.job_request import gres_of
from extender.pod_request.translation import TranslationConfig
from kubernetes_client.protocol import Manifest
from slurm_client import gres
from slurm_client.job_state import JobState
from slurm_client.model import Node as SlurmNode
from wellknown.allocation import Allocation
from wellknown.job_key import whole_number
from wellknown.names import ADOPTED
from wellknown.resources import MEBIBYTE, effective_requests, whole

_NEVER_FITS = 2**63
_SYSTEM_CRITICAL = 2_000_000_000  # priority of system-cluster-critical, above all users' own classes

_counts = lru_cache(4096)(gres.counts)  # thousands of nodes have only a few different GRES texts


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts of resources: CPUs in thousandths, memory in bytes, and numbers of devices. The keys of
    `gres` are names ("gpu") and names with types ("gpu:h100")."""

    cpu: int = 0
    memory: int = 0
    gres: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        """Returns equal keys for equal amounts."""
        return (self.cpu, self.memory, *self.gres.items())

    def less(self, others: Collection["Amounts"]) -> "Amounts":
        """Returns these amounts less the other amounts; negative if the other amounts are
        larger."""
        if not others:
            return self
        cpu, memory, devices = self.cpu, self.memory, Counter(self.gres)
        for other in others:
            cpu -= other.cpu
            memory -= other.memory
            devices.subtract(other.gres)
        return Amounts(cpu, memory, devices)

    def within(self, free: Self) -> bool:
        """Returns True if these requested amounts fit into the free amounts. As in kube-scheduler, a
        resource that is not requested fits everywhere."""
        fits = (self.cpu <= free.cpu or not self.cpu) and (self.memory <= free.memory or not self.memory)
        if not fits or not self.gres:
            return fits
        return all(count <= free.gres.get(name, 0) for name, count in self.gres.items())

    def covers(self, asked: Self) -> bool:
        """Returns True if these free amounts are not negative for any requested resource. A negative
        amount means that the resource is already used twice."""
        return (
            (self.cpu >= 0 or not asked.cpu)
            and (self.memory >= 0 or not asked.memory)
            and all(self.gres.get(name, 0) >= 0 for name in asked.gres)
        )

    def exceeds(self, other: Self) -> bool:
        """Returns True if these amounts have more of at least one resource than the other amounts."""
        return (
            self.cpu > other.cpu
            or self.memory > other.memory
            or any(count > other.gres.get(name, 0) for name, count in self.gres.items())
        )


@dataclass(frozen=True, slots=True)
class UnschedulablePod:
    """An unmanaged Pod that waits for room."""

    uid: str
    namespace: str
    name: str
    priority: int
    asked: Amounts
    at: float


def requested(manifest: Manifest, translation: TranslationConfig) -> Amounts:
    """Returns a Pod's requests for resources that Slurm also counts. If the Pod will have a job, CPUs
    are rounded up to Slurm's units. Never raises an error."""
    try:
        amounts = effective_requests(manifest["spec"])
    except ValueError:  # a number is too large; kube-apiserver has rejected all other invalid amounts
        return Amounts(cpu=_NEVER_FITS)
    cpus, memory = amounts.get("cpu", Decimal(0)), whole(amounts.get("memory", Decimal(0)))
    if translation.adopts and not exempt(manifest):
        cpus = whole(cpus, translation.cpu_unit) * translation.cpu_unit
    cpu = whole(cpus * 1000)
    devices = ",".join(f"{name}:{count}" for name, count in gres_of(amounts, translation))
    return Amounts(cpu, memory, _counts(devices))


def asks_uncounted_gpus(manifest: Manifest, translation: TranslationConfig) -> bool:
    """Returns True if a Pod requests GPUs by a resource name that Slurm does not count. Slurm does not
    know of such a request, and may give the same GPUs to jobs. Returns False if the setting
    `shared_gpus` is `allow`. Never raises an error."""
    if translation.shared_gpus == "allow":
        return False
    try:
        return bool(translation.uncounted_gpus(effective_requests(manifest["spec"])))
    except ValueError:
        return False


def exempt(manifest: Manifest) -> bool:
    """Returns True for a Pod that must run without Slurm's consent: a Pod of a DaemonSet, or a Pod that
    is critical to the system. The resources of such a Pod are not free for other Pods."""
    if any(map(_is_daemon_set, manifest["metadata"].get("ownerReferences") or ())):
        return True
    return (manifest["spec"].get("priority") or 0) >= _SYSTEM_CRITICAL


def is_mirror(manifest: Manifest) -> bool:
    """Returns True for a mirror Pod. A mirror Pod shows a static Pod in kube-apiserver, and the kubelet
    already runs the static Pod."""
    return "kubernetes.io/config.mirror" in (manifest["metadata"].get("annotations") or {})


def _is_daemon_set(owner: Manifest) -> bool:
    """Returns True if the owner is a DaemonSet that controls the Pod. A reference to a missing DaemonSet
    does no harm, because the garbage collector deletes the Pod."""
    of_apps = (owner.get("apiVersion") or "").partition("/")[0] == "apps"
    return bool(of_apps and owner.get("kind") == "DaemonSet" and owner.get("controller"))


def open_to_pods(node: SlurmNode, translation: TranslationConfig) -> Amounts:
    """Returns the resources of a node that unmanaged Pods may use beside the jobs. While a job is
    completing on the node, no resources are free. Slurm already reports the resources of this job as
    free, but the job's processes may still run. Until the processes end, Slurm also places no other job
    on the node."""
    return Amounts() if "COMPLETING" in node.states else left_by_jobs(node, translation)


def left_by_jobs(node: SlurmNode, translation: TranslationConfig) -> Amounts:
    """Returns the resources of a node that Slurm has not allocated. The resources that Slurm sets apart
    for the system (CoreSpecCount, MemSpecLimit) are included, because DaemonSets use these resources."""
    cpus, memory_mb = node.cpus - node.cpus_allocated, node.memory_mb - node.memory_allocated_mb
    devices = _counts(node.gres).copy()
    devices.subtract(_counts(node.gres_used))
    return Amounts(int(cpus * translation.cpu_unit * 1000), memory_mb * MEBIBYTE, devices)


def placeholder_of(manifest: Manifest, translation: TranslationConfig) -> int | None:
    """Returns, from a bound Pod's annotation, the id of the job that has the Pod's resources in Slurm.
    Returns None if the Pod names no such job."""
    if not translation.manages(manifest):
        return adopted_as(manifest) if translation.adopts else None
    allocation = Allocation.parse(manifest["metadata"].get("annotations") or {})
    return allocation.job_id if allocation else None


def adopted_as(manifest: Manifest) -> int | None:
    """Returns the id of an adopted Pod's job, from the Pod's annotation."""
    return whole_number((manifest["metadata"].get("annotations") or {}).get(ADOPTED, ""))


def bound_for_s(manifest: Manifest, now: datetime) -> float:
    """Returns the seconds from the Pod's Binding, as kube-apiserver dates the Binding, until `now`.
    Returns infinity if the time of the Binding is not known."""
    for condition in (manifest.get("status") or {}).get("conditions") or ():
        since = condition.get("lastTransitionTime")
        if condition["type"] == "PodScheduled" and condition["status"] == "True" and since:
            return (now - datetime.fromisoformat(since)).total_seconds()
    return inf


def uncounted(
    bound: Iterable[Manifest], states: Mapping[int, JobState], translation: TranslationConfig
) -> Iterable[Amounts]:
    """Yields the requests that Slurm does not count: the requests of bound Pods whose job holds no
    nodes, and of bound Pods without a job. For example, a Pod may outlast its placeholder by the grace
    period."""
    for manifest in bound:
        state = states.get(placeholder_of(manifest, translation) or 0)
        if state is None or not state.holds_nodes:
            yield requested(manifest, translation)


class Occupancy:
    """The free capacity of each Node that stands for a Slurm node, and the Pods that wait for room."""

    def __init__(self, remembered: int = 256) -> None:
        self._remembered = remembered
        self._left: dict[str, Amounts] = {}
        self._free: dict[str, Amounts] = {}
        self._pods: dict[str, dict[str, Amounts]] = {}
        self._node_of: dict[str, str] = {}
        self._exempt: set[str] = set()
        self._leaving: set[str] = set()
        self._grown: set[str] = set()
        self._unschedulable: dict[str, UnschedulablePod] = {}

    def slurm_seen(self, left: Mapping[str, Amounts], *, after_outage: bool = False) -> None:
        """Takes the resources that Slurm's jobs leave, by Node. After an outage of Slurm, every Node
        counts as a Node with more room."""
        before, self._left = {} if after_outage else self._free, dict(left)
        self._free = {node: self._free_on(node) for node in left}
        self._grown.update(
            node for node, free in self._free.items() if node not in before or free.exceeds(before[node])
        )

    def node_seen(self, node: str, left: Amounts) -> None:
        """Takes the resources that Slurm's jobs leave on a Node."""
        self._left[node] = left
        self._count_again(node)

    def pod_seen(
        self, uid: str, node: str, asked: Amounts, *, exempt: bool = False, leaving: bool = False
    ) -> None:
        """Takes a bound Pod that Slurm does not count. `leaving` is True for a deleted Pod during its
        grace period."""
        if exempt:
            self._exempt.add(uid)
        if leaving:
            self._leaving.add(uid)
        self._node_of[uid] = node
        self._pods.setdefault(node, {})[uid] = asked
        self._count_again(node)

    def pod_gone(self, uid: str) -> None:
        """Notes the end of a Pod."""
        self._exempt.discard(uid)
        self._leaving.discard(uid)
        node = self._node_of.pop(uid, None)
        if node is None:
            return
        del self._pods[node][uid]
        if not self._pods[node]:
            del self._pods[node]
        self._count_again(node)

    def has_uncounted_pods(self, node: str) -> bool:
        """Returns True if a Node has Pods that Slurm does not count and that are not exempt."""
        return any(uid not in self._exempt for uid in self._pods.get(node, ()))

    def closed(self, asked: Amounts, names: Sequence[str]) -> list[str]:
        """Returns the given Nodes with known free resources that are too small for the requested
        amounts."""
        free = self._free
        return [name for name in names if name in free and not asked.within(free[name])]

    def fits_without(self, asked: Amounts, node: str, gone: Collection[str]) -> bool:
        """Returns True if the requested amounts fit on a Node after the Pods in `gone` (uids) have left.
        Slurm's allocations stay, so only resources of Pods that Slurm does not count become free.
        Returns True if the resources of the Node are not known."""
        if node not in self._left:
            return True
        stay = [amounts for uid, amounts in self._pods.get(node, {}).items() if uid not in gone]
        return asked.within(self._left[node].less(stay))

    def fits_without_leaving(self, asked: Amounts, node: str) -> bool:
        """Returns True if the requested amounts fit on a Node after the deleted Pods have left."""
        return self.fits_without(asked, node, self._leaving)

    def remember(self, pod: UnschedulablePod) -> None:
        """Remembers a waiting Pod, up to a limit. A few Pods are enough, because the Binding of a
        remembered Pod makes kube-scheduler try all waiting Pods again."""
        self._unschedulable.pop(pod.uid, None)
        if len(self._unschedulable) < self._remembered:
            self._unschedulable[pod.uid] = pod

    def forget(self, uid: str) -> None:
        """Notes that a Pod no longer waits."""
        self._unschedulable.pop(uid, None)

    def forget_before(self, then: float) -> bool:
        """Forgets the Pods that kube-scheduler has not tried since `then`. Returns True if any
        remembered Pod still waits."""
        self._unschedulable = {uid: pod for uid, pod in self._unschedulable.items() if pod.at >= then}
        return bool(self._unschedulable)

    def take_those_with_room(self) -> list[UnschedulablePod]:
        """Returns the waiting Pods that may fit on a Node with more room than at the last call, and all
        Pods that request nothing. The Pod with the highest priority comes first. Forgets the returned
        Pods."""
        freed = [Amounts(), *(self._free[node] for node in self._grown if node in self._free)]
        self._grown.clear()
        alike = {pod.asked.key: pod.asked for pod in self._unschedulable.values()}
        room = {key: any(asked.within(free) for free in freed) for key, asked in alike.items()}
        fitting = [pod for pod in self._unschedulable.values() if room[pod.asked.key]]
        for pod in fitting:
            del self._unschedulable[pod.uid]
        return sorted(fitting, key=lambda pod: -pod.priority)

    def _free_on(self, node: str) -> Amounts:
        return self._left[node].less(self._pods.get(node, {}).values())

    def _count_again(self, node: str) -> None:
        if node not in self._left:
            return
        before, self._free[node] = self._free.get(node), self._free_on(node)
        if before is None or self._free[node].exceeds(before):
            self._grown.add(node)
