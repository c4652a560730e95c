"""Judges what was seen: what lasts too long (`anomalies`), and what may not happen even once.

Not even once, while everything fails:
- Two live jobs of one Pod (I1). The one exception is what nobody can prevent: a killed slurmctld forgets
  up to 5 s of what it acknowledged, so that a cancelled job may come back; then, for ROLLBACK_S after
  the kill, a second job is left to `anomalies`, which wants it gone once all is well.
- A Pod bound while its job was not RUNNING on that node (I2). A Binding may have been under way for
  FLIGHT_S when its job ended: the extender's own timeout and the longest stall of a link.
- A Pod deleted, or a native job cancelled, though nobody outside the extender gave cause (I3, I5, I6).
  Causes are the workload's own deletions and cancellations, which are noted before they are sent, and
  what Slurm itself does to a job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tests.chaos.anomalies import DUPLICATES, UNBOUND_LEAKS, WRONG_KILLS, Anomaly, Lasting, anomalies
from tests.chaos.seen import SeenJob, SeenPod

ROLLBACK_S = 15.0
FLIGHT_S = 20.0
LAG_S = 5.0
"""How much later than the extender we may see what a job does."""
DOUBT_S = 20.0
"""How long a bound Pod's job must wait before one may conclude that Slurm will not start it again."""
# What Slurm does to a job by itself, after which its Pod is rightly evicted.
_SLURMS_DOING = frozenset(
    {"TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
)


@dataclass(slots=True)
class Causes:
    """What people and attacks did, noted before it is done. Names are never used twice."""

    deleted: set[str] = field(default_factory=set)
    """Pods."""
    cancelled: set[str] = field(default_factory=set)
    """Pods whose placeholder an admin cancels."""
    native_cancelled: set[str] = field(default_factory=set)
    slurmctld_killed: list[float] = field(default_factory=list)

    def rolled_back(self, begin: float, end: float) -> bool:
        """Whether slurmctld may have forgotten something between two moments."""
        return any(begin - ROLLBACK_S <= at <= end for at in self.slurmctld_killed)


@dataclass(slots=True)
class Stretch:
    """A job in one state: surely so from the first answer to the last question that was answered so."""

    first: float
    last: float
    job: SeenJob


@dataclass(frozen=True, slots=True)
class Binding:
    at: float
    pod: SeenPod


class Judge:
    """Is told what is seen, as it is seen, by one thread at a time. Times are seconds of one clock."""

    def __init__(self, causes: Causes, node_cpus: Mapping[str, int]) -> None:
        self.violations: list[Anomaly] = []
        self.pods: dict[str, SeenPod] = {}
        self.names: dict[str, str] = {}
        """Every Pod ever seen: uid -> name."""
        self._causes = causes
        self._node_cpus = node_cpus
        self._lasting = Lasting()
        self._stretches: dict[int, list[Stretch]] = defaultdict(list)
        self._jobs_of: dict[str, set[int]] = defaultdict(set)
        self._bindings: list[Binding] = []
        self._evicted: dict[str, tuple[float, SeenPod]] = {}
        self._history: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self._last_single: dict[str, float] = {}
        self._told: set[tuple[str, str]] = set()

    # What is seen

    def pod_seen(self, now: float, pod: SeenPod) -> None:
        before = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        self.names[pod.uid] = pod.name
        if before is None or str(before) != str(pod):
            self._history[pod.uid].append((now, f"Pod {pod}"))
        if pod.node and not (before and before.node):
            self._bindings.append(Binding(now, pod))
        if pod.deleting:
            self._went(now, pod)

    def pod_gone(self, now: float, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._history[uid].append((now, "Pod gone"))
            self._went(now, pod)

    def jobs_seen(
        self, begin: float, end: float, calm_since: float | None, jobs: Collection[SeenJob]
    ) -> None:
        """What slurmctld said of all jobs, asked at `begin` and answered at `end`."""
        for job in jobs:
            self._job_seen(begin, end, job)
        seen = anomalies(self.pods.values(), jobs, self._node_cpus)
        self.violations += self._lasting.update(end, calm_since, seen)
        self._judge_duplicates(end, [found for found in seen if found.kind == DUPLICATES], jobs)

    def conclude(self) -> None:
        """Judges what could not be judged before all was seen."""
        for binding in self._bindings:
            self._judge_binding(binding)
        for uid, (at, pod) in self._evicted.items():
            self._judge_eviction(uid, at, pod)

    def history(self, uid: str) -> list[tuple[float, str]]:
        """Everything that was seen of a Pod and its jobs."""
        return sorted(self._history[uid])

    @property
    def longest_s(self) -> Mapping[str, float]:
        """How long anomalies of each kind lasted at most, calm or not."""
        return self._lasting.longest_s

    @property
    def bound(self) -> int:
        """How many Pods were bound."""
        return len(self._bindings)

    # How it is judged

    def _went(self, now: float, pod: SeenPod) -> None:
        self._evicted.setdefault(pod.uid, (now, pod))

    def _job_seen(self, begin: float, end: float, job: SeenJob) -> None:
        stretches = self._stretches[job.id]
        if stretches and str(stretches[-1].job) == str(job):
            stretches[-1].last = begin
            return
        stretches.append(Stretch(end, begin, job))
        if job.uid:
            self._jobs_of[job.uid].add(job.id)
            self._history[job.uid].append((end, str(job)))
        elif job.state == "CANCELLED" and job.name not in self._causes.native_cancelled:
            self._violated(WRONG_KILLS, job.name, f"nobody cancelled native job {job.id} {job.name}")

    def _judge_duplicates(self, now: float, seen: list[Anomaly], jobs: Collection[SeenJob]) -> None:
        double = {found.about: found for found in seen}
        for uid in {job.uid for job in jobs if job.uid} - double.keys():
            self._last_single[uid] = now
        for uid, found in double.items():
            if not self._causes.rolled_back(self._last_single.get(uid, now), now):
                self._violated(DUPLICATES, uid, f"{found.words}, without a rollback of slurmctld's")

    def _judge_binding(self, binding: Binding) -> None:
        """Only what was the same before and after the Binding is held against it."""
        pod, at = binding.pod, binding.at
        around = [s for s in self._stretches.get(pod.job_id or 0, []) if s.first < at < s.last]
        for stretch in around:
            job, ended = stretch.job, stretch.first + FLIGHT_S < at
            rightly = job.running and job.node == pod.node
            excused = self._causes.rolled_back(at, at + ROLLBACK_S) if job.live else not ended
            if not rightly and not excused:
                self._violated(UNBOUND_LEAKS, pod.uid, f"{pod.name} was bound to {pod.node} with {job}")

    def _judge_eviction(self, uid: str, at: float, pod: SeenPod) -> None:
        if pod.name in self._causes.deleted | self._causes.cancelled:
            return
        stretches = [
            s for job in self._jobs_of[uid] for s in self._stretches[job] if s.first <= at + LAG_S
        ]
        if not any(self._left_its_pod(stretch, pod) for stretch in stretches):
            self._violated(WRONG_KILLS, uid, f"nobody gave cause to delete {pod.name}")

    def _left_its_pod(self, stretch: Stretch, pod: SeenPod) -> bool:
        """Slurm ended it, or a rollback made Slurm start it again somewhere else."""
        job = stretch.job
        moved = job.running and bool(pod.node) and job.node != pod.node
        requeued = job.state == "PENDING" and bool(pod.node) and stretch.last - stretch.first > DOUBT_S
        return job.state in _SLURMS_DOING or ((moved or requeued) and job.id == pod.job_id)

    def _violated(self, kind: str, about: str, words: str) -> None:
        if (kind, about) not in self._told:
            self._told.add((kind, about))
            self.violations.append(Anomaly(kind, about, words))
