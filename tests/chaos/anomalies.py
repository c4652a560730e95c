"""Finds anomalies by a comparison of both systems, and measures how long an anomaly lasts.

Both systems agree only after some time, so each anomaly may occur for a moment: a Pod is created before
its job, and ends before its job. During a disturbance, such a moment lasts longer. So an anomaly is a
violation only if the anomaly lasts for GRACE_S in a quiet period: every component runs, and no link
fails. GRACE_S covers the duration of the Lease, kube-scheduler's longest backoff (10 s), and the time
until slurmrestd gives up on a killed slurmctld (10 s). If only kube-scheduler can end the anomaly, the
quiet period starts after kube-scheduler sees Pods again (`canary`). The final audit accepts no anomaly,
however short.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.node_sync.drains import DrainCause, cause_of
from slurm_client import hostlist
from tests.chaos.cluster_spec import CLOSED, CROWD, PROBES
from tests.chaos.history import SeenJob, SeenNode, SeenPod
from tests.chaos.plan import Odd

GRACE_S = 20.0
WAITS_S = 75.0
"""Grace of a forgotten job while a native job has the cores: the gate rejects the native job after 45
s. Also the grace of a node that the gate has drained. The drain stays while a job is COMPLETING on the
node, and a requeued job stays COMPLETING until the gate rejects the job."""
RESTS_S = 150.0
"""Grace of a Pod that kube-scheduler has rejected up to three times. The backoff is then 30 s, 1 minute
or 2 minutes."""
SWEPT_S = 45.0
"""Grace of a job without a Pod: a new leader ends such a job some 30 s after the election."""

DUPLICATES = "duplicates"
LOST = "lost"
WRONG_KILLS = "wrong_kills"
UNBOUND_LEAKS = "unbound_leaks"
OVERCOMMITTED = "overcommitted"
STUCK_NODES = "stuck_nodes"
UNDONE = "undone"
"""Another actor ended a person's cordon, drain or DOWN."""
UNDERSIZED = "undersized"
"""A Pod is bound by a job with too few resources for the Pod, or in another partition."""
KINDS = (DUPLICATES, LOST, WRONG_KILLS, UNBOUND_LEAKS, OVERCOMMITTED, STUCK_NODES, UNDONE, UNDERSIZED)

_REFUSED, _RESTS = "Invalid", "NotBindable"
_MISSING = "PodsMissing"
"""Reason of the condition while other Pods of the gang do not exist."""
_TOLD: Mapping[str, str] = {
    Odd.GREEDY: "WaitingForSubmitSlot",
    Odd.DENIED: _REFUSED,
    Odd.CLAIM: "ClaimNotReady",
    Odd.NOWHERE: _RESTS,
}
"""Reason of the condition while an odd Pod rightly has no job, by the kind of the odd Pod
(`plan.Odd`)."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An anomaly. `about` is the uid of the Pod, or the name of another object. Anomalies that differ
    only in the grace are equal."""

    kind: str
    about: str
    words: str
    grace_s: float = field(default=GRACE_S, compare=False)
    placing: bool = field(default=False, compare=False)
    """True if the anomaly can end only while kube-scheduler sees Pods."""


def anomalies(
    pods: Collection[SeenPod],
    jobs: Collection[SeenJob],
    node_cpus: Mapping[str, int],
    usable: Mapping[str, int] | None = None,
) -> list[Anomaly]:
    """Returns all current anomalies. `usable` has the CPUs of the nodes in service; None means all
    nodes."""
    live: dict[str, list[SeenJob]] = defaultdict(list)
    for job in jobs:
        if job.uid and job.live:
            live[job.uid].append(job)
    by_uid: dict[str, list[SeenPod]] = defaultdict(list)
    for pod in pods:
        by_uid[pod.workload].append(pod)
    return [
        *_duplicates(live),
        *_orphans(live, by_uid),
        *(
            found
            for pod in pods
            if not pod.over and not _waits_for_its_node(pod, live[pod.workload], usable)
            for found in (_of_pod if pod.managed else _of_adopted_pod)(pod, live[pod.workload])
        ),
        *_stuck(by_uid, jobs, node_cpus if usable is None else usable),
        *_overcommitted(pods, jobs, node_cpus),
    ]


def _duplicates(live: Mapping[str, list[SeenJob]]) -> Iterator[Anomaly]:
    """Finds violations of I1: a workload has at most one live placeholder."""
    for uid, jobs in live.items():
        if len(jobs) > 1:
            ids = ", ".join(str(job.id) for job in sorted(jobs, key=lambda job: job.id))
            yield Anomaly(DUPLICATES, uid, f"two live jobs: {ids}")


def _orphans(live: Mapping[str, list[SeenJob]], pods: Mapping[str, list[SeenPod]]) -> Iterator[Anomaly]:
    """Finds violations of I3: if all Pods are gone, have ended, or are deleted before the Binding, the
    job ends. A bound Pod keeps its job until the Pod has ended."""
    for uid, jobs in live.items():
        for job in jobs:
            if uid not in pods:
                yield Anomaly(LOST, uid, f"job {job.id} lives without its Pod {job.name}", SWEPT_S)
            elif all(pod.ended or (pod.deleting and not pod.node) for pod in pods[uid]):
                yield Anomaly(LOST, uid, f"job {job.id} outlives its Pod {job.name}")


def _of_pod(pod: SeenPod, jobs: list[SeenJob]) -> Iterator[Anomaly]:
    """Finds anomalies of a managed Pod. The Pod runs on the node of a running job, or waits with a
    waiting job. A Pod without a job has a condition with the reason."""
    if pod.node:
        if not any(job.runs_on(pod.node) for job in jobs):
            words = f"{pod.name} is bound to {pod.node} without a job there"
            waits = any(job.state == "PENDING" for job in jobs)
            yield Anomaly(UNBOUND_LEAKS, pod.uid, words, WAITS_S if waits else GRACE_S)
        return
    if jobs and pod.told == _REFUSED:
        yield Anomaly(UNBOUND_LEAKS, pod.uid, f"{pod.name} is refused, and has a job")
    if not jobs and not (pod.told and pod.told in (_TOLD.get(pod.odd), pod.gang and _MISSING)):
        words = f"{pod.name} waits without a job"
        rests = pod.told == _RESTS
        yield Anomaly(LOST, pod.uid, words, RESTS_S if rests else GRACE_S, placing=rests)
    for job in jobs:
        if job.running and pod.odd != Odd.NOWHERE:  # `Checker.held_s` measures NOWHERE
            words = f"job {job.id} runs, {pod.name} is not bound"
            yield Anomaly(UNBOUND_LEAKS, pod.uid, words, placing=True)


def _waits_for_its_node(pod: SeenPod, jobs: list[SeenJob], usable: Mapping[str, int] | None) -> bool:
    """Returns True if a Pod's node has failed in Slurm alone, and the next job waits for the node."""
    out = bool(pod.node) and usable is not None and pod.node not in usable
    return out and [job.state for job in jobs] == ["PENDING"]


def _of_adopted_pod(pod: SeenPod, jobs: list[SeenJob]) -> Iterator[Anomaly]:
    """Finds anomalies of an adopted Pod. The Pod may have no job, because Slurm may have allocated the
    cores to another job before the adoption."""
    for job in jobs:
        if job.running and job.node != pod.node:
            yield Anomaly(UNBOUND_LEAKS, pod.uid, f"job {job.id} is not where adopted Pod {pod.name} is")


def _stuck(
    pods: Mapping[str, list[SeenPod]], jobs: Collection[SeenJob], node_cpus: Mapping[str, int]
) -> Iterator[Anomaly]:
    """Finds Pods that wait although each waiting job would fit on a node of the shared partitions."""
    free = dict(node_cpus)
    for job in jobs:
        for node in hostlist.expand(job.node) if job.running else ():
            free[node] = free.get(node, 0) - job.cpus  # a gang has fewer CPUs on each of several nodes
    elsewhere = (CROWD, PROBES, CLOSED)
    pending = (job for job in jobs if job.state == "PENDING" and not job.held)
    waiting = [job for job in pending if job.partition not in elsewhere]
    room = max((cpus for node, cpus in free.items() if not node.startswith("external")), default=0)
    for job in waiting if all(job.cpus <= room for job in waiting) else ():
        if job.uid in pods and not any(pod.node for pod in pods[job.uid]):
            first = pods[job.uid][0]
            words = f"{first.gang or first.name} waits where there is room"
            yield Anomaly(LOST, job.uid, words, placing=True)


def _overcommitted(
    pods: Collection[SeenPod], jobs: Collection[SeenJob], node_cpus: Mapping[str, int]
) -> Iterator[Anomaly]:
    """Finds nodes whose bound Pods and native jobs request more CPUs than the node has. A native job may
    get the cores of a Pod in deletion, or of a Pod with a forgotten job. Such a native job must wait at
    the gate, and `overlap` checks this wait. The grace is longer if Pods with forgotten jobs request at
    least the CPUs in excess."""
    used: Counter[str] = Counter()
    waiting = {job.uid for job in jobs if job.state == "PENDING"}
    forgotten: Counter[str] = Counter()
    for pod in pods:
        if pod.node and not pod.over:
            used[pod.node] += pod.cpus
            if pod.workload in waiting:
                forgotten[pod.node] += pod.cpus
    for job in jobs:
        if job.running and not job.uid:
            used[job.node] += job.cpus
    for node, cpus in used.items():
        room = node_cpus.get(node, 0)
        if cpus > room:
            grace = WAITS_S if cpus - forgotten[node] <= room else GRACE_S
            yield Anomaly(OVERCOMMITTED, node, f"{node} is overcommitted", grace)


def of_nodes(nodes: Collection[SeenNode]) -> Iterator[Anomaly]:
    """Finds nodes out of service in only a single system, and nodes with a wrong condition or taint."""
    for node in nodes:
        if node.cordoned and node.in_service:
            yield Anomaly(STUCK_NODES, node.name, f"{node.name} is cordoned and takes jobs")
        if node.ours and not node.cordoned:
            grace = WAITS_S if cause_of(node.reason) is DrainCause.PROLOG_REFUSED else GRACE_S
            words = f"{node.name} stays out of service: {node.reason}"
            yield Anomaly(STUCK_NODES, node.name, words, grace)
        if node.told == node.in_service or node.tainted == (node.in_service or node.ours):
            words = f"the condition is {node.told}, the taint {node.tainted}: {node.reason}"
            yield Anomaly(STUCK_NODES, node.name, f"{node.name} is told wrong: {words}")


class Since(NamedTuple):
    """Starts of the current quiet periods; None during a disturbance."""

    all_serve: float | None
    """Start of the period in which every component runs, and no link fails."""
    placing: float | None
    """Start of the period in which kube-scheduler also sees Pods."""

    def lasted(self, anomaly: Anomaly, since: float, now: float) -> float:
        """Returns the seconds for which an anomaly has lasted in an uninterrupted quiet period."""
        quiet = self.placing if anomaly.placing else self.all_serve
        return 0.0 if quiet is None else now - max(since, quiet)


class Lasting:
    """Separates lasting anomalies from passing anomalies."""

    def __init__(self) -> None:
        self._since: dict[Anomaly, float] = {}
        self._told: set[Anomaly] = set()
        self.longest_s: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        """Longest duration by kind, including disturbed times."""

    def update(self, now: float, quiet: Since, seen: Collection[Anomaly]) -> list[Anomaly]:
        """Notes all anomalies of a moment. Returns the anomalies whose grace has just ended."""
        self._since = {anomaly: self._since.get(anomaly, now) for anomaly in seen}
        self._told &= set(seen)
        for anomaly, since in self._since.items():
            self.longest_s[anomaly.kind] = max(self.longest_s[anomaly.kind], now - since)
        too_long = [
            anomaly
            for anomaly, since in self._since.items()
            if quiet.lasted(anomaly, since, now) >= anomaly.grace_s and anomaly not in self._told
        ]
        self._told.update(too_long)
        return too_long
