"""Checks the history of a run for violations: anomalies that last too long, and other violations.

The module `anomalies` finds anomalies. The other violations must never happen, even while components
fail:

- Two live jobs of a Pod (I1). A killed slurmctld may forget the last 5 s, so a cancelled job may live
  again. For ROLLBACK_S after a kill, a second job is only an anomaly, and must end after the cluster has
  healed.
- A Binding while the Pod's job does not run on the node (I2). A Binding may be on the way for FLIGHT_S
  after the end of the job: the extender's own timeout, and the longest stall of a link.
- A deletion of a Pod, or a cancellation of a native job, without a cause outside the extender (I3, I5,
  I6). Causes are Slurm's own changes of a job, and actions of the workload, noted before each action.
  Only the author may delete an adopted Pod.
- A Pod bound by a job with fewer CPUs or GPUs than the Pod requests, or in a partition that the Pod did
  not request. The job's owner may have shrunk or moved the job.
- A gang of which only a part is bound for longer than `gangs.limit_s`, while nothing fails.
- A node back in service that a person took out of service, unless slurmctld forgot the person's action.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tests.chaos.anomalies import (
    DUPLICATES,
    UNBOUND_LEAKS,
    UNDERSIZED,
    UNDONE,
    WRONG_KILLS,
    Anomaly,
    Lasting,
    Since,
    anomalies,
    of_nodes,
)
from tests.chaos.gangs import PartlyBound
from tests.chaos.history import ENDED_BY_SLURM, SeenJob, SeenNode, SeenPod
from tests.chaos.overlap import Stay
from tests.chaos.plan import Mischief, Outage
from tests.chaos.signals import Kind, Signal
from wellknown.names import Reason

ROLLBACK_S = 15.0
FLIGHT_S = 20.0
LAG_S = 5.0
"""Seconds by which the observer may see a change of a job later than the extender."""
DOUBT_S = 20.0
"""Waiting time of a bound Pod's job, in seconds, after which the extender may conclude that Slurm will
not start the job again."""
FORGETS_S = 75.0
"""Longest outage of slurmctld, in seconds. If slurmctld was killed at most this time before the start of
a process, slurmctld may not know the process."""
WATCHED_S = 10.0
"""Seconds before a deletion by force that must be quiet. In a disturbed time, perhaps no leader sees the
deletion."""


@dataclass(slots=True)
class Causes:
    """Actions of people and attacks, noted before each action. Names are never used twice."""

    deleted: dict[str, float] = field(default_factory=dict)
    """Time of the deletion by a person, by the name of the Pod."""
    forced: set[str] = field(default_factory=set)
    """Pods of `deleted` with a deletion by force: kube-apiserver removes such a Pod before the
    containers end."""
    cancelled: dict[str, float] = field(default_factory=dict)
    """Time of an administrator's cancellation of the placeholder, by the name of the Pod."""
    native_cancelled: set[str] = field(default_factory=set)
    slurmctld_killed: list[float] = field(default_factory=list)
    state_lost: list[float] = field(default_factory=list)
    """Times of losses of slurmctld's whole state."""
    held_out: dict[str, tuple[Outage, float]] = field(default_factory=dict)
    """Nodes that a person keeps out of service: kind of the outage, and time from which the node surely
    is out of service."""
    mischief: list[tuple[float, str, str]] = field(default_factory=list)
    """Changes of placeholders: time, uid of the Pod, and kind. Only a suspension is a cause to evict a
    running Pod."""

    def gave_cause(self, pod: SeenPod, bound_at: float, at: float) -> bool:
        """Returns True if a person or an attack gave a cause to delete a Pod. The end of the job is no
        cause to delete an adopted Pod."""
        if self.deleted.get(pod.name, inf) <= at:
            return True
        if pod.managed and self.cancelled.get(pod.gang or pod.name, inf) <= at:
            return True
        if pod.told == Reason.SLURM_DEVICES_CHANGED and pod.gpus and pod.managed:
            return self._restarted_its_job(bound_at, at)
        suspended = ((when, uid) for when, uid, how in self.mischief if how == Mischief.SUSPEND)
        return any(when <= at and uid == pod.workload for when, uid in suspended)

    def _restarted_its_job(self, bound_at: float, at: float) -> bool:
        """Returns True if slurmctld may have restarted the job of a bound Pod, on other devices."""
        lost = any(bound_at <= when <= at for when in self.state_lost)
        return lost or any(bound_at - ROLLBACK_S <= when <= at for when in self.slurmctld_killed)

    def rolled_back(self, begin: float, end: float) -> bool:
        """Returns True if slurmctld may have forgotten a change between two times."""
        return any(begin - ROLLBACK_S <= at <= end for at in self.slurmctld_killed)

    def forgot(self, since: float) -> bool:
        """Returns True if slurmctld may have forgotten a request that was made at `since`."""
        soon = any(since <= at <= since + ROLLBACK_S for at in self.slurmctld_killed)
        return soon or any(since <= at for at in self.state_lost)


@dataclass(slots=True)
class Stretch:
    """Time in which a job was surely in a single state: from the first reply with the state to the last
    request whose reply has the state."""

    first: float
    last: float
    job: SeenJob


def _overlap_s(stretch: Stretch, span: tuple[float, float]) -> float:
    return max(0.0, min(stretch.last, span[1]) - max(stretch.first, span[0]))


@dataclass(frozen=True, slots=True)
class Binding:
    at: float
    pod: SeenPod


@dataclass(frozen=True, slots=True)
class Eviction:
    pod: str
    bound_at: float
    deleted_at: float
    """Time of the deletion by the author; infinity without such a deletion."""
    ended_at: float
    """Time of the Pod's own end before a deletion; infinity without such an end."""
    at: float | None
    """Time at which the observer saw the deletion; None without a deletion."""


class Checker:
    """Judges all observations of a run. Only a single thread at a time may report an observation. All
    times are seconds of the same clock."""

    def __init__(self, causes: Causes, node_cpus: Mapping[str, int]) -> None:
        self.violations: list[Anomaly] = []
        self.pods: dict[str, SeenPod] = {}
        self.names: dict[str, str] = {}
        """Names of all Pods since the start, by uid."""
        self.uids: dict[str, str] = {}
        """Workloads of the same Pods, by the name of the Pod or of the gang."""
        self.odd: dict[str, str] = {}
        """Reasons (`plan.Odd`) of the Pods that can never be bound, by uid."""
        self.adopted: set[str] = set()
        """Uids of the adopted Pods whose job ran on the Pod's node."""
        self._causes = causes
        self._node_cpus = node_cpus
        self._lasting, self._nodes_lasting = Lasting(), Lasting()
        self._out: frozenset[str] = frozenset()
        self._lingering_pods: dict[str, Stay] = {}
        self._moved: list[Stay] = []
        """Stays of bound Pods on the cores that the Pods had before a move to other cores."""
        self._linger_s: dict[str, int] = {}
        """Seconds for which containers may run on after their Pod's deletion by force, by uid of the
        Pod."""
        self._ended_by_slurm: set[int] = set()
        self._stretches: dict[int, list[Stretch]] = defaultdict(list)
        self._jobs_of: dict[str, set[int]] = defaultdict(set)
        self._named: dict[str, set[int]] = defaultdict(set)
        self._looks: list[tuple[float, float]] = []
        """Times of each request to slurmctld, and of the reply."""
        self._bindings: list[Binding] = []
        self._bound_at: dict[str, float] = {}
        self._bound_by: dict[int, Binding] = {}
        """Bindings by the id of the Pod's job."""
        self._evicted: dict[str, tuple[float, SeenPod]] = {}
        self._ended_at: dict[str, float] = {}
        self._history: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self._last_single: dict[str, float] = {}
        self._told: set[tuple[str, str]] = set()
        self._members: dict[str, set[str]] = defaultdict(set)
        """Uids of all Pods of a workload since the start."""
        self.partly_bound = PartlyBound()

    # Observations

    def pod_seen(self, now: float, pod: SeenPod) -> None:
        before = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        self.names[pod.uid], self.uids[pod.gang or pod.name] = pod.name, pod.workload
        self._members[pod.workload].add(pod.uid)
        if pod.odd:
            self.odd[pod.uid] = pod.odd
        if before is None or str(before) != str(pod):
            self._history[pod.uid].append((now, f"Pod {pod}"))
        if pod.node and not (before and before.node):
            self._bound(now, pod)
        elif (stay := self._lingering_pods.get(pod.uid)) and stay.cores != pod.cores:
            self._moved.append(stay)
            self._lingering_pods[pod.uid] = replace(stay, first=now, last=now, cores=pod.cores)
        if pod.deleting:
            self._went(now, pod)
        elif pod.ended:
            self._ended_at.setdefault(pod.uid, now)
        self._note_gang(now, pod)

    def pod_gone(self, now: float, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._history[uid].append((now, "Pod gone"))
            if pod.name in self._causes.forced and not (pod.deleting or pod.ended):
                self._linger_s[uid] = pod.grace_s
            self._went(now, pod)
            self._note_gang(now, pod)

    def _note_gang(self, now: float, pod: SeenPod) -> None:
        if pod.gang:
            there = [self.pods[uid] for uid in self._members[pod.workload] if uid in self.pods]
            self.partly_bound.note(now, pod, there)

    def pod_there(self, at: float, uid: str) -> None:
        """Notes that a bound Pod surely existed at a time, and had not ended."""
        if stay := self._lingering_pods.get(uid):
            self._lingering_pods[uid] = replace(stay, last=max(at, stay.last))

    def nodes_seen(self, begin: float, now: float, quiet: Since, nodes: Collection[SeenNode]) -> None:
        """Judges the nodes as both systems report them. The requests began at `begin`."""
        self._out = frozenset(node.name for node in nodes if not node.in_service or node.cordoned)
        self.violations += self._nodes_lasting.update(now, quiet, list(of_nodes(nodes)))
        held_out = dict(self._causes.held_out)
        for node in nodes:
            how, since = held_out.get(node.name, (None, inf))
            if how is None or since > begin or node.name not in self._causes.held_out:
                continue
            out = node.cordoned if how is Outage.CORDON else not node.in_service
            if not out and (how is Outage.CORDON or not self._causes.forgot(since)):
                self._violated(UNDONE, node.name, f"{node.name} is back, which a person {how}")

    def jobs_seen(self, begin: float, end: float, quiet: Since, jobs: Collection[SeenJob]) -> None:
        """Judges slurmctld's reply with all jobs. The request began at `begin`, and the reply came at
        `end`."""
        self._looks.append((begin, end))
        for job in jobs:
            self._named[job.name].add(job.id)
            self._job_seen(begin, end, job)
            there = (self.pods.get(uid) for uid in self._members.get(job.uid, ()))
            for pod in there:
                if pod is None or not job.runs_on(pod.node):
                    continue
                self._judge_size(pod, job)
                if not pod.managed:
                    self.adopted.add(job.uid)
        usable = {node: cpus for node, cpus in self._node_cpus.items() if node not in self._out}
        seen = anomalies(self.pods.values(), jobs, self._node_cpus, usable)
        self.violations += self._lasting.update(end, quiet, seen)
        self._judge_duplicates(end, [found for found in seen if found.kind == DUPLICATES], jobs)

    def conclude(self, signals: Collection[Signal] = ()) -> None:
        """Judges all Bindings and evictions at the end of the run, with the signals in slurmctld's
        log."""
        self._ended_by_slurm = {each.job_id for each in signals if each.kind is not Kind.CANCELLED}
        for binding in self._bindings:
            self._judge_binding(binding)
        for uid, (at, pod) in self._evicted.items():
            self._judge_eviction(uid, at, pod)

    def history(self, uid: str) -> list[tuple[float, str]]:
        """Returns all observations of a Pod and of the Pod's jobs, with their times."""
        done = [(at, f"its job is {what}") for at, whose, what in self._causes.mischief if whose == uid]
        return sorted([*self._history[uid], *done])

    def placed_before(self, moment: float) -> set[str]:
        """Returns the workloads of the Pods with a Binding before a time, without Pods that are over
        (`SeenPod.over`)."""
        there = ((uid, pod.workload) for uid, pod in self.pods.items() if not pod.over)
        return {workload for uid, workload in there if self._bound_at.get(uid, inf) < moment}

    @property
    def longest_s(self) -> Mapping[str, float]:
        """Returns the longest duration of an anomaly, by kind. Disturbed times count, too."""
        lasted = self._nodes_lasting.longest_s
        return {kind: max(took, lasted[kind]) for kind, took in self._lasting.longest_s.items()}

    def held_s(self, blind: Sequence[tuple[float, float]]) -> Mapping[str, list[float]]:
        """Returns the seconds for which the jobs of each unbindable Pod held nodes, by the reason
        (`plan.Odd`). Leaves out the times in `blind`, when kube-scheduler saw no Pods and could not
        reject Nodes."""
        held = defaultdict[str, list[float]](list)
        for uid, why in self.odd.items():
            held[why].append(self._ran_s(uid, blind))
        return held

    def _ran_s(self, uid: str, without: Sequence[tuple[float, float]]) -> float:
        stretches = (s for job in self._jobs_of[uid] for s in self._stretches[job] if s.job.running)
        return sum(
            _overlap_s(s, (s.first, s.last)) - sum(_overlap_s(s, span) for span in without)
            for s in stretches
        )

    def lingering_pods(self, quiet: Callable[[float, float], bool] = lambda *_: False) -> list[Stay]:
        """Returns the stays of the Pods placed by Slurm. After a deletion by force, a stay includes the
        time of the remaining containers if `quiet` returns True for the time around the deletion."""
        lingering_pods = dict(self._lingering_pods)
        for uid, seconds in self._linger_s.items():
            if (stay := lingering_pods.get(uid)) and quiet(stay.last - WATCHED_S, stay.last + seconds):
                lingering_pods[uid] = replace(stay, last=stay.last + seconds)
        return [*self._moved, *lingering_pods.values()]

    def cores_of(self, job_id: int, node: str) -> frozenset[int]:
        """Returns the cores of a native job on a node; none if a later start on the node had other
        cores."""
        seen = {s.job.cores for s in self._stretches[job_id] if s.job.node == node and s.job.there}
        return seen.pop() if len(seen) == 1 else frozenset()

    @property
    def node_cpus(self) -> Mapping[str, int]:
        return self._node_cpus

    def follows_state_loss(self, at: float, within: float) -> bool:
        """Returns True if Slurm lost all of its state at most `within` seconds before a time."""
        return any(lost <= at <= lost + within for lost in self._causes.state_lost)

    def disowned(self, process: Stay, at: float) -> bool:
        """Returns True if a killed slurmctld has forgotten the start of a native job's process."""
        stretches = [s for job in self._named[process.who] for s in self._stretches[job]]
        here = [s for s in stretches if s.job.node == process.node and s.job.there]
        soon = min(process.last, at + LAG_S)
        return any(
            not any(each.first <= end and each.last >= begin for each in here)
            and any(process.first - FORGETS_S <= at <= end for at in self._causes.slurmctld_killed)
            for begin, end in self._looks
            if process.first < begin and end < soon
        )

    def eviction(self, job_id: int) -> Eviction | None:
        """Returns how the bound Pod of a job ended. Returns None if no Pod was bound by the job."""
        binding = self._bound_by.get(job_id)
        if binding is None:
            return None
        at, _ = self._evicted.get(binding.pod.uid, (None, None))
        deleted_at = self._causes.deleted.get(binding.pod.name, inf)
        ended_at = self._ended_at.get(binding.pod.uid, inf)
        return Eviction(binding.pod.name, binding.at, deleted_at, ended_at, at)

    @property
    def gangs_bound(self) -> set[str]:
        """Returns the gangs with a bound member."""
        return {binding.pod.gang for binding in self._bindings if binding.pod.gang}

    @property
    def bound(self) -> int:
        """Returns the number of bound Pods."""
        return len(self._bindings)

    # Judgement

    def _went(self, now: float, pod: SeenPod) -> None:
        self._evicted.setdefault(pod.uid, (now, pod))

    def _bound(self, now: float, pod: SeenPod) -> None:
        self._bindings.append(binding := Binding(now, pod))
        self._bound_at[pod.uid] = now
        if pod.job_id is not None:
            self._bound_by[pod.job_id] = binding
        if pod.managed:
            stay = Stay(pod.name, pod.node, pod.cpus, now, now, cores=pod.cores)
            self._lingering_pods[pod.uid] = stay

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

    def _judge_size(self, pod: SeenPod, job: SeenJob) -> None:
        """Judges the running job of a bound Pod. A running job cannot shrink or move, so the job had the
        same size and partition at the Binding."""
        if not pod.managed or pod.job_id != job.id or pod.over:
            return
        if pod.exceeds(job):
            self._violated(UNDERSIZED, pod.uid, f"{pod.name} of {pod.cpus} CPUs is bound by {job}")
        if not pod.may_be_in(job.partition):
            words = f"{pod.name} for {', '.join(pod.partitions)} is bound by {job} in {job.partition}"
            self._violated(UNDERSIZED, pod.uid, words)

    def _judge_binding(self, binding: Binding) -> None:
        """Judges a Binding by the states of the job that began before the Binding and ended after the
        Binding."""
        pod, at = binding.pod, binding.at
        around = [s for s in self._stretches.get(pod.job_id or 0, []) if s.first < at < s.last]
        for stretch in around:
            job, ended = stretch.job, stretch.first + FLIGHT_S < at
            rightly = job.runs_on(pod.node)
            excused = self._causes.rolled_back(at, at + ROLLBACK_S) if job.live else not ended
            if not rightly and not excused:
                self._violated(UNBOUND_LEAKS, pod.uid, f"{pod.name} was bound to {pod.node} with {job}")

    def _judge_eviction(self, uid: str, at: float, pod: SeenPod) -> None:
        if self._causes.gave_cause(pod, self._bound_at.get(uid, at), at):
            return
        members = self._members[pod.workload]
        if sum(self._bound_at.get(each, inf) <= at for each in members) < pod.gang_size:
            return  # the extender evicts a gang of which a member cannot be bound
        jobs = self._jobs_of[pod.workload]
        stretches = [s for job in jobs for s in self._stretches[job] if s.first <= at + LAG_S]
        if not pod.managed or not any(self._left_its_pod(stretch, pod) for stretch in stretches):
            self._violated(WRONG_KILLS, uid, f"nobody gave cause to delete {pod.name}")

    def _left_its_pod(self, stretch: Stretch, pod: SeenPod) -> bool:
        """Returns True if Slurm ended the job, if the job runs on another node, or if the job has waited
        again for longer than DOUBT_S."""
        job = stretch.job
        moved = job.running and bool(pod.node) and not job.runs_on(pod.node)
        requeued = job.state == "PENDING" and bool(pod.node) and stretch.last - stretch.first > DOUBT_S
        ended = job.state in ENDED_BY_SLURM or job.id in self._ended_by_slurm
        return ended or ((moved or requeued) and job.id == pod.job_id)

    def _violated(self, kind: str, about: str, words: str) -> None:
        if (kind, about) not in self._told:
            self._told.add((kind, about))
            self.violations.append(Anomaly(kind, about, words))
