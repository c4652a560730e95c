"""The capacity of each Node that Slurm's jobs leave to unmanaged Pods, which Slurm does not know.

kube-scheduler counts all Pods but no native jobs, Slurm counts all jobs but no unmanaged Pods. Free for
one more unmanaged Pod is a node's capacity, less what Slurm has allocated (native jobs and placeholders
alike), less what the unmanaged Pods bound there request. Resources that Slurm does not count, and Nodes
that are not Slurm's, are left to kube-scheduler.
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
from slurm_client.model import JobState
from slurm_client.model import Node as SlurmNode
from wellknown.allocation import Allocation
from wellknown.job_key import whole_number
from wellknown.names import ADOPTED
from wellknown.resources import MEBIBYTE, effective_requests, whole

_NEVER_FITS = 2**63
_SYSTEM_CRITICAL = 2_000_000_000
"""The priority of system-cluster-critical; no user's own class may reach it."""

_counts = lru_cache(4096)(gres.counts)  # thousands of nodes have a handful of texts


@dataclass(frozen=True, slots=True)
class Amounts:
    """CPUs in thousandths, bytes of memory, GRES by name ("gpu") and by name and type ("gpu:h100")."""

    cpu: int = 0
    memory: int = 0
    gres: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        """Returns a key that is the same for equal amounts."""
        return (self.cpu, self.memory, *self.gres.items())

    def less(self, others: Collection["Amounts"]) -> "Amounts":
        """Returns what is left without others' amounts; below zero where they have too much."""
        if not others:
            return self
        cpu, memory, devices = self.cpu, self.memory, Counter(self.gres)
        for other in others:
            cpu -= other.cpu
            memory -= other.memory
            devices.subtract(other.gres)
        return Amounts(cpu, memory, devices)

    def within(self, free: Self) -> bool:
        """Tells whether these amounts fit. As in kube-scheduler, a resource that is not requested fits
        everywhere."""
        return (
            (self.cpu <= free.cpu or not self.cpu)
            and (self.memory <= free.memory or not self.memory)
            and (
                not self.gres
                or all(count <= free.gres.get(name, 0) for name, count in self.gres.items())
            )
        )

    def covers(self, asked: Self) -> bool:
        """Tells whether none of the requested resources is given away twice already."""
        return (
            (self.cpu >= 0 or not asked.cpu)
            and (self.memory >= 0 or not asked.memory)
            and all(self.gres.get(name, 0) >= 0 for name in asked.gres)
        )

    def exceeds(self, other: Self) -> bool:
        """Tells whether there is more of any resource than in the other amounts."""
        return (
            self.cpu > other.cpu
            or self.memory > other.memory
            or any(count > other.gres.get(name, 0) for name, count in self.gres.items())
        )


@dataclass(frozen=True, slots=True)
class UnschedulablePod:
    """An unmanaged Pod that waits, since no Node has room for it."""

    uid: str
    namespace: str
    name: str
    priority: int
    asked: Amounts
    at: float


def requested(manifest: Manifest, translation: TranslationConfig) -> Amounts:
    """Returns what a Pod takes of a Node, of the resources that Slurm counts too: in Slurm's units
    where the Pod will have a job. Never raises."""
    try:
        amounts = effective_requests(manifest["spec"])
    except ValueError:  # too large a number: kube-apiserver lets no other through
        return Amounts(cpu=_NEVER_FITS)
    cpus, memory = amounts.get("cpu", Decimal(0)), whole(amounts.get("memory", Decimal(0)))
    if translation.adopts and not exempt(manifest):
        cpus = whole(cpus, translation.cpu_unit) * translation.cpu_unit
    cpu = whole(cpus * 1000)
    devices = ",".join(f"{name}:{count}" for name, count in gres_of(amounts, translation))
    return Amounts(cpu, memory, _counts(devices))


def asks_uncounted_gpus(manifest: Manifest, translation: TranslationConfig) -> bool:
    """Tells whether a Pod asks for GPUs that Slurm does not count, and may give to its jobs as well. The
    setting `shared_gpus` may allow that. Never raises."""
    if translation.shared_gpus == "allow":
        return False
    try:
        return bool(translation.uncounted_gpus(effective_requests(manifest["spec"])))
    except ValueError:
        return False


def exempt(manifest: Manifest) -> bool:
    """Tells whether a Pod must run without Slurm's consent: a DaemonSet's, or critical to the system.
    It counts against other Pods all the same."""
    if any(map(_is_daemon_set, manifest["metadata"].get("ownerReferences") or ())):
        return True
    return (manifest["spec"].get("priority") or 0) >= _SYSTEM_CRITICAL


def _is_daemon_set(owner: Manifest) -> bool:
    """Tells whether an owner is a DaemonSet's controller; the garbage collector removes Pods of one
    that does not exist."""
    of_apps = (owner.get("apiVersion") or "").partition("/")[0] == "apps"
    return bool(of_apps and owner.get("kind") == "DaemonSet" and owner.get("controller"))


def open_to_pods(node: SlurmNode, translation: TranslationConfig) -> Amounts:
    """Returns what unmanaged Pods may use of a node beside its jobs.

    Nothing while a job is ending there: Slurm gives its resources up on paper before its processes
    are gone, and places no job there until they are.
    """
    return Amounts() if "COMPLETING" in node.states else left_by_jobs(node, translation)


def left_by_jobs(node: SlurmNode, translation: TranslationConfig) -> Amounts:
    """Returns what Slurm has not allocated of a node; resources that it sets apart for the system count
    as left (CoreSpecCount, MemSpecLimit: DaemonSets use them)."""
    cpus, memory_mb = node.cpus - node.cpus_allocated, node.memory_mb - node.memory_allocated_mb
    devices = _counts(node.gres).copy()
    devices.subtract(_counts(node.gres_used))
    return Amounts(int(cpus * translation.cpu_unit * 1000), memory_mb * MEBIBYTE, devices)


def placeholder_of(manifest: Manifest, translation: TranslationConfig) -> int | None:
    """Returns the job that counts for a bound Pod in Slurm, by the Pod's annotation, None where there
    is none."""
    if not translation.manages(manifest):
        return adopted_as(manifest) if translation.adopts else None
    allocation = Allocation.parse(manifest["metadata"].get("annotations") or {})
    return allocation.job_id if allocation else None


def adopted_as(manifest: Manifest) -> int | None:
    """Returns the job that runs for an adopted Pod, by the Pod's annotation."""
    return whole_number((manifest["metadata"].get("annotations") or {}).get(ADOPTED, ""))


def bound_for_s(manifest: Manifest, now: datetime) -> float:
    """Returns for how many seconds a Pod has been bound, by kube-apiserver's clock; infinity where the
    Pod does not say."""
    for condition in (manifest.get("status") or {}).get("conditions") or ():
        since = condition.get("lastTransitionTime")
        if condition["type"] == "PodScheduled" and condition["status"] == "True" and since:
            return (now - datetime.fromisoformat(since)).total_seconds()
    return inf


def uncounted(
    bound: Iterable[Manifest], states: Mapping[int, JobState], translation: TranslationConfig
) -> Iterable[Amounts]:
    """Returns the requests of bound Pods that Slurm does not count: Pods without a job that still has
    the resources.

    A Pod may outlast its placeholder by its grace.
    """
    for manifest in bound:
        state = states.get(placeholder_of(manifest, translation) or 0)
        if state is None or not state.holds_nodes:
            yield requested(manifest, translation)


class Occupancy:
    """The free capacity of each Node that stands for a Slurm node, and the Pods that wait for it."""

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
        """Takes what Slurm's jobs leave, by Node. After an outage all of it counts as freed."""
        before, self._left = {} if after_outage else self._free, dict(left)
        self._free = {node: self._free_on(node) for node in left}
        self._grown.update(
            node for node, free in self._free.items() if node not in before or free.exceeds(before[node])
        )

    def node_seen(self, node: str, left: Amounts) -> None:
        """Takes what Slurm's jobs leave of one Node; it tells nothing about other Nodes."""
        self._left[node] = left
        self._count_again(node)

    def pod_seen(
        self, uid: str, node: str, asked: Amounts, *, exempt: bool = False, leaving: bool = False
    ) -> None:
        """Takes an unmanaged Pod that is bound to a Node, or its change. `leaving`: it was deleted, and
        still has its grace."""
        if exempt:
            self._exempt.add(uid)
        if leaving:
            self._leaving.add(uid)
        self._node_of[uid] = node
        self._pods.setdefault(node, {})[uid] = asked
        self._count_again(node)

    def pod_gone(self, uid: str) -> None:
        """Notes that a Pod does not exist any more."""
        self._exempt.discard(uid)
        self._leaving.discard(uid)
        node = self._node_of.pop(uid, None)
        if node is None:
            return
        del self._pods[node][uid]
        if not self._pods[node]:
            del self._pods[node]
        self._count_again(node)

    def has_adopted_pods(self, node: str) -> bool:
        """Tells whether unmanaged Pods that are not exempt are on a Node."""
        return any(uid not in self._exempt for uid in self._pods.get(node, ()))

    def closed(self, asked: Amounts, names: Sequence[str]) -> list[str]:
        """Returns the Nodes that have too little left."""
        free = self._free
        return [name for name in names if name in free and not asked.within(free[name])]

    def fits_without(self, asked: Amounts, node: str, gone: Collection[str]) -> bool:
        """Tells whether a Node has so much once these Pods (uids) are gone. Slurm's allocations stay:
        only resources of Pods that Slurm does not count become free."""
        if node not in self._left:
            return True
        stay = [amounts for uid, amounts in self._pods.get(node, {}).items() if uid not in gone]
        return asked.within(self._left[node].less(stay))

    def fits_without_leaving(self, asked: Amounts, node: str) -> bool:
        """Tells whether a Node has so much once the Pods that are leaving it are gone."""
        return self.fits_without(asked, node, self._leaving)

    def remember(self, pod: UnschedulablePod) -> None:
        """Remembers a Pod that waits for room. A few are enough: the binding of one wakes them all."""
        self._unschedulable.pop(pod.uid, None)
        if len(self._unschedulable) < self._remembered:
            self._unschedulable[pod.uid] = pod

    def forget(self, uid: str) -> None:
        """Notes that a Pod does not wait any more."""
        self._unschedulable.pop(uid, None)

    def forget_before(self, then: float) -> bool:
        """Forgets the Pods that have not asked since; tells whether any Pod still waits."""
        self._unschedulable = {uid: pod for uid, pod in self._unschedulable.items() if pod.at >= then}
        return bool(self._unschedulable)

    def take_those_with_room(self) -> list[UnschedulablePod]:
        """Returns the Pods for which a Node has room that it may not have had when they asked last, the
        most important first, and all that request nothing. The caller tells them, and they ask again."""
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
