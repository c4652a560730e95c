"""A model of Kubernetes and Slurm for tests of the ledger.

Every effect may be lost, or carried out with a lost reply. News for the ledger may come late. The world
checks the invariants after each event.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from extender.audit.compare import may_have_no_job
from extender.bind.job_as_read import JobAsRead, NotBound
from extender.explain.cause import Cause, Kind
from extender.filter.route import to_offer
from extender.jobs.claim import claim_of, is_of_pods, key_of, own_key
from extender.jobs.overlap import common
from extender.jobs.verdict import judge
from extender.node_view.view import ClusterView
from extender.placement.ledger import Ledger
from extender.placement.recovery import to_read, with_their_pods
from extender.pod_request.constraints.node_constraints import ANYWHERE, Node
from extender.pod_request.constraints.pod_constraints import NO_CONSTRAINTS, PodConstraints
from extender.pod_request.feasible_nodes import FeasibleNodes
from extender.pod_request.job_request import Request
from extender.pod_request.pod import Life, Pod, Scheduling, lacks_room
from extender.pod_request.workload import Workload
from extender.record.config import PlacementConfig
from extender.record.events import (
    CancelJob,
    CheckDepartures,
    ClusterObserved,
    Effect,
    Event,
    EvictPod,
    ExcludeNodes,
    Failure,
    HoldJob,
    JobRead,
    JobsPolled,
    OrphanFound,
    Outcome,
    PodObserved,
    PodVanished,
    ReadJob,
    RecordJobId,
    Recovered,
    Remedy,
    ReportWaiting,
    Submit,
    Tick,
    WriteAllocation,
    WriteAttempt,
)
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.unmanaged.free_capacity import TAKEN
from slurm_client import hostlist
from slurm_client.job_state import UNREAD, JobState
from slurm_client.model import Grant, Job, JobSpec, Partition
from tests.builders import TRANSLATION, changed
from wellknown import number_list
from wellknown.allocation import Allocation
from wellknown.job_key import PlaceholderKey, job_name
from wellknown.names import GATE
from wellknown.pauses import Pauses

OnSlurm = Submit | ReadJob | ExcludeNodes | HoldJob | CancelJob
E = TypeVar("E", bound=Effect)
NODES = ("n1", "n2")
HOSTNAME, ZONE, ZONES = "kubernetes.io/hostname", "zone", 3
NATIVE = "native"
PACKED = 2
"""Number of packed tasks for which a node has room."""


def view_of(nodes: tuple[str, ...]) -> ClusterView:
    """Returns the view of a cluster with these Nodes."""
    return ClusterView(
        cluster=PlacementConfig().cluster,
        nodes={
            name: Node(name, name, {HOSTNAME: name, ZONE: f"z{number % ZONES}"}, has_agent=True)
            for number, name in enumerate(nodes)
        },
        partitions={"main": Partition("main", nodes, default=True)},
        preemption=False,
    )


VIEW = view_of(NODES)
CORDONED = VIEW.with_node("n1", replace(VIEW.nodes["n1"], unschedulable=True))
REQUEST = Request(JobSpec("p@default", 1, 1), ANYWHERE)


def of_user(user: int | None) -> Request:
    """Returns the request of a Pod of a Slurm user."""
    return replace(REQUEST, job=replace(REQUEST.job, user_id=user))


LOST = Failure(Remedy.AGAIN, "the reply was lost")
REFUSAL = '0/2 nodes are available: persistentvolumeclaim "data" not found'
_DATA = Cause.of(Kind.CLAIM, kind="PersistentVolumeClaim", name="data", entry="data")
NO_CLAIM = Cause.of(Kind.CLAIM_MISSING, claim=_DATA)

NO_DEVICE = "UnexpectedAdmissionError: Allocate failed due to no healthy devices present"
"""Message of a kubelet that rejects a Pod because the device plugin has no healthy device."""


def kinds(effects: Iterable[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def of_kind(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def only(effects: Iterable[Effect], kind: type[E]) -> E:
    """Returns the only effect. The effect must be of this kind."""
    (effect,) = effects
    assert isinstance(effect, kind)
    return effect


@dataclass
class Replica:
    """A replica of the extender: the ledger, the effects in progress, and the news on the way to the
    replica."""

    ledger: Ledger
    effects: list[Effect] = field(default_factory=list)
    news: list[Event] = field(default_factory=list)
    poll: JobsPolled | None = None
    unaware_of: set[str] = field(default_factory=set)
    """Uids of the workloads whose Pods the replica does not know, because the watch broke off before the
    Pods came."""


@dataclass
class World:
    """Kubernetes, Slurm, kube-scheduler, and a ledger."""

    rules: PlacementConfig = field(
        default_factory=lambda: PlacementConfig(
            node_exclusion=20.0, offer_validity=10.0, unbindable=Pauses(5.0, 20.0)
        )
    )
    nodes: tuple[str, ...] = NODES
    jobs_per_node: int = 1
    """Number of jobs that Slurm starts on a node. Slurm fills one node after the other."""
    unmanaged: list[tuple[PodConstraints, str]] = field(default_factory=list)
    """Pods known only to kube-scheduler, with their Nodes. Slurm does not place such Pods."""
    rejected_for_pods: Counter[str] = field(default_factory=Counter)
    """Number of times that kube-scheduler rejected a Pod's Node because of other Pods, and offered other
    Nodes."""
    now: float = 0.0
    pods: dict[str, Pod] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    saved: dict[int, Job] | None = None
    saved_at: float = 0.0
    next_id: int = 1
    """Next id that Slurm chooses for a job. Slurm saves the number with the jobs. After a loss of the
    number, another job gets the same id."""
    next_saved: int = 1
    under_way: list[Submit] = field(default_factory=list)
    """Submissions without a reply in time. The submissions may still arrive."""
    revived: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    """Jobs that Slurm accepted after the reply was overdue, or for a forbidden Pod while two replicas
    acted as leader."""
    shared: bool = False
    """True after two replicas have acted as leader at the same time."""
    disturbed: set[str] = field(default_factory=set)
    """Workloads whose job ended, changed or was forgotten without an action of the ledger. The ledger
    may evict Pods of these workloads only."""
    acting: Replica = field(init=False)
    """The replica with the current turn."""
    other: Replica | None = None
    """Another replica that acts as leader."""
    bindings: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Bindings on their way, by uid: the version of the Pod, and the Node."""
    annotated: dict[str, Allocation] = field(default_factory=dict)
    """The allocation in each of the Bindings."""
    leaving: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Deleted Pods that use their whole grace, by uid: the time of the deletion, and the grace."""
    containers: dict[str, tuple[Pod, float]] = field(default_factory=dict)
    """Pods deleted by force, by uid, with the time until which their containers run."""
    noted: dict[str, tuple[Pod, float]] = field(default_factory=dict)
    """The same by the notes on Nodes, which the next leader also reads."""
    vacated_in: dict[str, float] = field(default_factory=dict)
    """Seconds until leaving Pods are gone, by Node."""
    max_jobs: int | None = None
    """Slurm's limit on jobs."""
    external: bool = True
    """True if the jobs are EXTERNAL_JOBs. slurmd starts no process of an EXTERNAL_JOB."""
    denied: set[str] = field(default_factory=set)
    """Pods whose jobs a job_submit plugin refuses with slurm.ERROR. The reply has no reason, and Slurm
    calls the plugin before the check for a duplicate id. Reset when the author changes the Pod."""
    tells_grants: bool = True
    """True if the reply to an immediate request contains the grant."""
    numbers: bool = False
    """True if Slurm reports the cores and GPUs of a job. At each start, a job gets another core, and
    mostly another GPU."""
    may_run: dict[int, int] = field(default_factory=dict)
    """Slurm's limit on the running jobs of each user (QOS MaxJobsPerUser). A user without an entry has
    no limit."""
    gives_to: tuple[int, int] | None = None
    """User and group of every queued job, regardless of the request."""
    unknown_users: set[int] = field(default_factory=set)
    """Users that slurmctld cannot resolve. slurmctld holds a batch job of such a user at the start
    (24.11)."""
    lacks_features: bool = False
    """True if no node can run any job. slurmctld then holds each waiting job, and does not release the
    job."""
    refusals: dict[int | None, Failure] = field(default_factory=dict)
    """Slurm's answer to each request for a job of these users."""
    overwrites_keys: bool = False
    """True if a job_submit plugin sets the AdminComment of every new job."""
    rewrites: dict[str, Any] = field(default_factory=dict)
    """Other fields that the plugin sets."""
    odd_names: set[int] = field(default_factory=set)
    """Jobs with names that are not UTF-8. No cancel request can contain such a name."""
    garbled: set[int] = field(default_factory=set)
    """Jobs for which Slurm's replies are unreadable."""
    lost_keys: str | None = None
    """Message of /readyz about jobs without their keys."""
    unbindable: set[str] = field(default_factory=set)
    """Pods that kube-scheduler always rejects on every Node before kube-scheduler calls the extender."""
    taken: set[str] = field(default_factory=set)
    """Nodes where Pods unknown to Slurm use all capacity."""
    held_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds of running jobs, by Pod, while the Pod could not be bound."""
    started: Counter[str] = field(default_factory=Counter)
    """Number of started jobs of each Pod. Each start may have preempted another job."""
    made: int = 0
    started_at: dict[int, float] = field(default_factory=dict)
    given: int = 0
    """Number of the core in the last grant."""
    version: int = 0
    groups: dict[str, Workload] = field(default_factory=dict)
    """All groups so far, by uid. The controller of a group replaces each deleted Pod."""
    submitted: dict[int, str] = field(default_factory=dict)
    """Workload of each job by the submission, even if the job's key changes later."""

    def __post_init__(self) -> None:
        self.view = VIEW if self.nodes == NODES else view_of(self.nodes)
        self.restart()

    # The ledger

    @property
    def ledger(self) -> Ledger:
        return self.acting.ledger

    @property
    def effects(self) -> list[Effect]:
        return self.acting.effects

    @property
    def news(self) -> list[Event]:
        return self.acting.news

    def fail_over(self) -> None:
        """Makes another replica the leader. The previous leader does not know about the change yet."""
        deposed, self.shared = self.acting, True
        self.restart()
        self.other = deposed

    def swap(self) -> None:
        """Gives the turn to the other replica."""
        assert self.other is not None
        self.acting, self.other = self.other, self.acting

    def _announce(self, event: Event, workload: str) -> None:
        for replica in (self.acting, self.other):
            if replica is not None and workload not in replica.unaware_of:
                replica.news.append(event)

    def list_again(self) -> None:
        """Lists all Pods for the replica with the broken watch. Some Pods are new to the replica."""
        unaware, self.acting.unaware_of = self.acting.unaware_of, set()
        for pod in self.pods.values():
            if pod.workload.uid in unaware:
                self.news.append(PodObserved(pod))

    def list_lacks(self, uids: Iterable[str]) -> None:
        """Lists all Pods, but without these Pods. The next list has the Pods again. Cancels in the
        meantime are lost."""
        self.settle()
        uids = [uid for uid in uids if uid in self.pods and not self.pods[uid].life.deleting]
        for uid in uids:
            together = self.pods_of(self.pods[uid].workload.uid)
            if any(
                pod.life.node is None for pod in together
            ):  # the other Pods may be bound before the Pod is back
                self.disturbed.add(together[0].workload.uid)
            self.tell(PodVanished(uid, seen=False))
        for effect in [each for each in self.effects if isinstance(each, CancelJob)]:
            self.effects.remove(effect)
            self.finish(effect, LOST)
        for uid in uids:
            self.tell(PodObserved(self.pods[uid]))

    def tell(self, event: Event) -> None:
        effects = self.ledger.apply(event, self.now)
        self.nothing_forbidden_is_asked(effects)
        self.effects.extend(effects)
        self.no_two_live_jobs()

    def restart(self) -> None:
        """Starts a new extender without state. The extender reads Kubernetes and Slurm."""
        self.lost_keys = None
        self.acting, self.saved = Replica(Ledger(self.rules, lost_keys=self._hear_of_keys)), None
        self.forget_containers()
        self.tell(ClusterObserved(self.view))
        keys = {job.id: key_of(job) for job in self.jobs.values()}
        states = {job_id: self._told_state(job_id) for job_id in self.jobs}
        wanted = set(to_read(self.pods.values(), states, self.rules))
        read = [job for job in self.jobs.values() if job.id in wanted - self.garbled]
        without = [job for job in read if keys[job.id] is None]
        lost = {job.id: uid for uid, job in with_their_pods(without, self.pods.values(), self.rules)}
        for uid in self.workloads():
            mine = [job for job in read if (key := keys[job.id]) is not None and key.uid == uid]
            mine += [job for job in without if lost.get(job.id) == uid]
            self.tell(Recovered(self.pods_of(uid), tuple(mine)))
        for job in tuple(self.jobs.values()):
            key = keys[job.id]
            if key is not None and not self._may_have(key, job) and not job.state.ended:
                self.tell(OrphanFound(key, job.id, job))
        self.tell(ClusterObserved(self.view))

    def _hear_of_keys(self, words: str | None) -> None:
        self.lost_keys = words

    def forget_containers(self) -> None:
        """Removes containers unknown to a new leader. A new leader knows containers only from the
        comment of a job with the key."""
        for uid, (pod, _) in tuple(self.containers.items()):
            jobs = [job for job in self.live_jobs(pod.workload.uid) if key_of(job) is not None]
            if not any("may run for another" in (job.comment or "") for job in jobs):
                del self.containers[uid]

    def sweep(self) -> None:
        """Ends live jobs unknown to the ledger if the Pod is gone, has a later attempt or another job,
        or may have no job."""
        known, lost = {p.job.id for p in self.ledger.placeholders}, self._missing_keys()
        for job in tuple(self.jobs.values()):
            key = key_of(job) or lost.get(job.id)
            if key is None or job.state.ended or job.id in known:
                continue
            pods = self.pods_of(key.uid)
            later = any(pod.scheduling.attempt > key.attempt for pod in pods)
            twice = any(each.id in known for each in self.live_jobs(key.uid))
            gone = not self._may_have(key, job)
            if gone or later or twice or may_have_no_job(pods):
                self.tell(OrphanFound(key, job.id))

    def _may_have(self, key: PlaceholderKey, job: Job) -> bool:
        """Returns True if a Pod of the workload may have a job: the job of an earlier gang with the same
        name does not count."""
        pods = self.pods_of(key.uid)
        return bool(pods) and is_of_pods(key, job.id, pods)

    def _missing_keys(self) -> dict[int, PlaceholderKey]:
        """Computes the lost keys of live jobs from the ids and names of the jobs. Returns the keys by
        job id."""
        without = [job for job in self.jobs.values() if key_of(job) is None and not job.state.ended]
        pods, found = {pod.workload.uid: pod for pod in self.pods.values()}, {}
        for uid, job in with_their_pods(without, pods.values(), self.rules):
            key = own_key(job.id, pods[uid], self.rules)
            if key is not None and judge(job, claim_of(pods[uid], self.rules, self.view)).is_ours:
                found[job.id] = key
        return found

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.end_graces()
        for uid in self.pods:
            if self.cannot_be_bound(uid):
                jobs = self.live_jobs(self.pods[uid].workload.uid)
                self.held_s[uid] += seconds * sum(job.state.running for job in jobs)
        self.tell(Tick())

    # Kubernetes

    def workloads(self) -> list[str]:
        """Returns the uids of all workloads with Pods."""
        return list(dict.fromkeys(pod.workload.uid for pod in self.pods.values()))

    def pods_of(self, workload: str) -> tuple[Pod, ...]:
        """Returns the Pods of a workload."""
        return tuple(pod for pod in self.pods.values() if pod.workload.uid == workload)

    def create_pod(
        self,
        priority: int = 0,
        request: Request = REQUEST,
        *,
        obstacle: Cause | None = None,
        group: Workload | None = None,
        constraints: PodConstraints = NO_CONSTRAINTS,
    ) -> str:
        self.made += 1
        uid = f"u{self.made}"
        name, created = f"p{self.made}", written_time(self.made)
        named = replace(request, job=replace(request.job, name=job_name("default", name)))
        own = Scheduling((GATE,), obstacle=obstacle, constraints=constraints)
        self.write(Pod(uid, "default", name, "0", named, Life(), own, created, priority, group=group))
        return uid

    def create_pods(self, number: int, **given: Any) -> list[str]:
        return [self.create_pod(**given) for _ in range(number)]

    def create_group(
        self, size: int, request: Request = REQUEST, *, packed: bool = False
    ) -> tuple[str, ...]:
        """Creates a group of Pods, and returns the uids. Packed Pods share nodes."""
        name = f"g{self.made + 1}"
        created = written_time(self.made + 1)
        group = Workload(f"uid-{name}", "default", name, created, size, None if packed else 1)
        self.groups[group.uid] = group
        return tuple(self.create_pod(request=request, group=group) for _ in range(size))

    def replace_member(self, workload: str, request: Request | None = None) -> str:
        """Creates another Pod for a group, as the controller of the group does. Returns the uid."""
        alike = next((pod.request for pod in self.pods_of(workload)), REQUEST)
        return self.create_pod(request=request or alike, group=self.groups[workload])

    def is_kept_out(self, pod: Pod) -> bool:
        """Returns True if the ledger does not count a Pod as a member of the group."""
        return pod.group is not None and self.ledger.record_of(pod.uid) is None

    def settled_pod(self, **given: Any) -> str:
        """Creates a Pod, and carries out all effects. Slurm starts the job at once if a node is free."""
        uid = self.create_pod(**given)
        self.settle()
        return uid

    def pod_and_submission(self, **given: Any) -> tuple[str, Submit]:
        """Creates a Pod, and takes the submission of the job: the test decides the outcome."""
        uid = self.create_pod(**given)
        self.hear_all()
        return uid, self.take(Submit)

    def bound_pod(self, **given: Any) -> str:
        uid = self.settled_pod(**given)
        if self.state_of(uid) is State.QUEUED:
            self.start_and_poll()
        self.bind_and_settle(uid)
        assert self.state_of(uid) is State.BOUND
        return uid

    def bound_pod_and_job(self) -> tuple[str, int]:
        uid = self.bound_pod()
        return uid, self.job_id_of(uid)

    def bind_a_pod_to_each_node(self) -> list[str]:
        return [self.bound_pod() for _ in self.nodes]

    def queued_pod(self, **given: Any) -> str:
        """Creates a Pod with a waiting job. Each node has a job already."""
        self.bind_a_pod_to_each_node()
        return self.settled_pod(**given)

    def claim(self, uid: str, *, missing: bool) -> None:
        """Adds or removes an object to which a Pod refers."""
        pod = self.pods[uid]
        self.write(changed(pod, obstacle=NO_CLAIM if missing else None))

    def make_volume(self, uid: str, node: str | None) -> None:
        """Sets the Node that kube-scheduler has chosen for a new volume; None after the volume
        exists."""
        self.write(changed(self.pods[uid], provisioned_on=node))

    def write(self, pod: Pod) -> None:
        self.version += 1
        pod = pod._replace(resource_version=str(self.version))
        self.pods[pod.uid] = pod
        self._announce(PodObserved(pod), pod.workload.uid)

    def remove_pod(self, uid: str, *, seen: bool = True) -> None:
        """Removes a Pod after the end of the containers. The kubelet reports the end first."""
        pod = self._drop(uid)
        if pod is not None:
            last = changed(pod, deleting=True, finished=pod.life.node is not None)
            self._announce(PodVanished(uid, seen, last if seen else None), pod.workload.uid)

    def _drop(self, uid: str) -> Pod | None:
        pod = self.pods.pop(uid, None)
        self.leaving.pop(uid, None)
        if pod is not None and pod.group is not None:  # the other Pods may also have to go
            self.disturbed.add(pod.group.uid)
        return pod

    def kubelet_starts(self, uid: str) -> None:
        """Starts a Pod's containers, as the kubelet does."""
        self.write(changed(self.pods[uid], started=True))

    def kubelet_rejects(self, uid: str, why: str = NO_DEVICE) -> None:
        """Rejects a Pod, as the kubelet does. The Pod has failed, and never has containers. The
        controller creates another Pod."""
        pod = self.pods[uid]
        if pod.life.node is not None and not pod.life.started and pod.group is None:
            self.write(changed(pod, finished=True, kubelet_rejection=why))

    def force_delete(self, uid: str, *, seen: bool = True) -> None:
        """Removes a Pod at once. The kubelet ends the containers after the news of the removal."""
        pod = self._drop(uid)
        if pod is not None:
            replicas = [each for each in (self.acting, self.other) if each is not None]
            unaware = any(pod.workload.uid in each.unaware_of for each in replicas)
            if seen and not unaware and not pod.life.finished:  # otherwise, the containers are unknown
                self.containers[uid] = self.noted[uid] = pod, self.now + pod.life.grace
            last = changed(pod, deleting=True)
            self._announce(PodVanished(uid, seen, last if seen else None), pod.workload.uid)

    def delete_pod(self, uid: str, grace: int) -> None:
        """Deletes a Pod with a grace. The Pod uses the whole grace, but an unbound Pod is gone at once.
        A later deletion may only shorten the grace (rest.BeforeDelete)."""
        pod = self.pods[uid]
        deleted, before = self.leaving.get(uid, (self.now, grace + 1))
        if pod.life.node is None:
            self.remove_pod(uid)
        elif grace < before:
            self.leaving[uid] = deleted, grace
            self.write(changed(pod, deleting=True, deletion_grace=grace))
            self.end_graces()

    def end_graces(self) -> None:
        for uid, (deleted, grace) in tuple(self.leaving.items()):
            if self.now >= deleted + grace:
                del self.leaving[uid]
                self.remove_pod(uid)

    def outwrite(self) -> None:
        """Writes to each Pod just before the writes of the ledger, so that the writes of the ledger
        conflict."""
        versioned = (WriteAllocation, WriteAttempt, EvictPod)
        for effect in [each for each in self.effects if isinstance(each, versioned)]:
            if effect.pod.uid in self.pods:
                self.write(self.pods[effect.pod.uid])
            self.effects.remove(effect)
            self.finish(effect, self.do(effect))

    def hear(self) -> None:
        """Delivers the oldest undelivered change to the ledger, as the watch does."""
        if self.news:
            self.tell(self.news.pop(0))

    def bind(self, uid: str) -> None:
        """Lets kube-scheduler bind a Pod through the checks of /bind, reject every Node, or offer other
        Nodes."""
        if self.cannot_be_bound(uid):
            self.refuse(uid, offers=False)
        if self.reject_for_pods(uid):
            return
        self.look(uid)
        self.begin_binding(uid)
        self.finish_binding(uid)

    def begin_binding(self, uid: str) -> None:
        """Reads the Pod and the job for /bind. The Binding follows."""
        pod = self.pods.get(uid)
        if pod is None or pod.gated or pod.life.node or pod.scheduling.allocation is None:
            return
        node = pod.scheduling.allocation.node
        if self.cannot_be_bound(uid) or pod.scheduling.provisioned_on or node in self.taken:
            return
        if self.containers_end_on(node) or self.containers_have(pod):
            return
        job, known = self.jobs.get(pod.scheduling.allocation.job_id), self.ledger.allocated(uid)
        as_seen = known is not None and known[1].pod.resource_version == pod.resource_version
        if known is not None and as_seen and known[0].job.asked.immediate:
            # For an immediate grant, the leader checks only the state of the job
            # (Binder._still_granted).
            if job is not None and job.state.running:
                self.bindings[uid] = pod.resource_version, pod.scheduling.allocation.node
                self.annotated[uid] = known[1].slot or pod.scheduling.allocation
            return
        try:
            granted = JobAsRead(job).slot(pod, pod.scheduling.allocation.node, self.view, self.rules)
        except NotBound:
            return
        self.bindings[uid] = pod.resource_version, granted.node
        self.annotated[uid] = granted

    def reject_for_pods(self, uid: str) -> bool:
        """Lets kube-scheduler reject the allocated Node because of bound Pods, and offer the suitable
        Nodes. Returns True after a rejection."""
        pod = self.pods.get(uid)
        if pod is None or pod.gated or pod.life.node or pod.scheduling.allocation is None:
            return False
        found = tuple(name for name in self.nodes if not self.closed_by_pods(pod, name))
        if pod.scheduling.allocation.node in found:
            return False
        self.rejected_for_pods[uid] += bool(found)
        words = "0/2 nodes are available: 1 node(s) didn't match pod anti-affinity rules"
        self.say(uid, words, FeasibleNodes(pod.scheduling.allocation.job_id, found) if found else None)
        return True

    def closed_by_pods(self, pod: Pod, node: str) -> bool:
        """Returns True if kube-scheduler's InterPodAffinity, NodePorts or PodTopologySpread reject a
        Node."""
        own, labels = (
            pod.scheduling.constraints,
            {name: each.labels for name, each in self.view.nodes.items()},
        )
        bound = [(p.scheduling.constraints, name) for p, name in self.nodes_in_use() if p.uid != pod.uid]
        bound += self.unmanaged
        for other, there in bound:
            terms = [t for t in own.anti_affinity if t.matches(other)]
            terms += [t for t in other.anti_affinity if t.matches(own)]
            if any(labels[there][t.topology_key] == labels[node][t.topology_key] for t in terms):
                return True
            if there == node and own.uses_port_of(other):
                return True
        for each in own.spread:
            counts = {labels[name][each.topology_key]: 0 for name in self.nodes}
            for other, there in bound:
                counts[labels[there][each.topology_key]] += other.is_selected(each.selector)
            own_domain = counts[labels[node][each.topology_key]]
            if own_domain + own.is_selected(each.selector) - min(counts.values()) > each.max_skew:
                return True
        return False

    def containers_end_on(self, node: str) -> bool:
        """Returns True if the leader's /bind knows of containers on the Node whose Pod and job have
        ended."""
        outlive = (each.job.id for each in self.ledger.holding(node) if each.lingering)
        running = self.running()
        return any(job_id not in running for job_id in outlive)

    def containers_have(self, pod: Pod) -> bool:
        """Returns True if containers of a deleted Pod of the same job use the slot of a Pod. Every
        replica's /bind knows this from the notes on Nodes."""
        slot = pod.scheduling.allocation
        old = [each.scheduling.allocation for each, until in self.noted.values() if until > self.now]
        same = [each for each in old if each and slot and each.job_id == slot.job_id]
        return slot is not None and any(each == slot or common(each, slot) for each in same)

    def cannot_be_bound(self, uid: str) -> bool:
        """Returns True if kube-scheduler rejects a Pod on every Node before kube-scheduler calls the
        extender."""
        pod = self.pods.get(uid)
        return uid in self.unbindable or (pod is not None and pod.scheduling.obstacle is not None)

    def finish_binding(self, uid: str) -> None:
        """Carries out the Binding, if the version of the Pod has not changed."""
        version, node = self.bindings.pop(uid, ("", ""))
        pod = self.pods.get(uid)
        if pod is not None and pod.resource_version == version:
            bound_at = written_time(self.made)
            self.write(changed(pod, node=node, bound_at=bound_at, allocation=self.annotated[uid]))

    def nodes_in_use(self) -> Iterator[tuple[Pod, str]]:
        """Yields the Pods with a Binding, or with a Binding on its way, and the Nodes of the Pods."""
        for pod in self.pods.values():
            version, node = self.bindings.get(pod.uid, ("", ""))
            if (pod.life.node or version == pod.resource_version) and not pod.life.finished:
                yield pod, pod.life.node or node
        for pod, until in self.containers.values():
            if pod.life.node and self.now < until:
                yield pod, pod.life.node

    def refuse(self, uid: str, *, offers: bool) -> None:
        """Lets kube-scheduler reject the allocated Node, and offer all other Nodes or none."""
        pod = self.pods[uid]
        if pod.gated or pod.life.node or pod.scheduling.allocation is None:
            return
        others = tuple(name for name in self.nodes if name != pod.scheduling.allocation.node)
        offered = FeasibleNodes(pod.scheduling.allocation.job_id, others) if offers else None
        self.say(uid, REFUSAL, offered)

    def say(self, uid: str, refusal: str, offered: FeasibleNodes | None = None) -> None:
        """Writes kube-scheduler's message onto a Pod without a suitable Node."""
        pod, room = self.pods[uid], lacks_room(refusal, TRANSLATION)
        refused = changed(
            pod, looked_at=True, node_rejection=refusal, lacks_room=room, feasible_nodes=offered
        )
        if refused != pod:  # kube-scheduler writes the same condition once
            self.write(refused)

    def look(self, uid: str) -> None:
        """Lets kube-scheduler look at an unbound Pod again. If some Nodes fit, kube-scheduler calls
        /filter.

        /filter records the Nodes once for each attempt and each job. If other Pods use the allocation,
        as /bind has found out, /filter rejects every Node.
        """
        pod = self.pods[uid]
        granted = pod.scheduling.allocation
        if pod.scheduling.gates or pod.life.node or self.cannot_be_bound(uid):
            return
        taken = granted is not None and granted.node in self.taken
        job_id = 0 if granted is None else granted.job_id
        found = [name for name in self.nodes if not self.closed_by_pods(pod, name)]
        names = to_offer(granted, found, retried=pod.scheduling.attempt > 1, taken=taken)
        noted = (
            pod.scheduling.feasible_nodes is not None and pod.scheduling.feasible_nodes.job_id == job_id
        )
        told = (
            changed(pod, feasible_nodes=FeasibleNodes(job_id, tuple(names)))
            if names and not noted
            else pod
        )
        told = changed(told, looked_at=True, node_rejection=TAKEN) if taken else told
        if told != pod:
            self.write(told)

    def edit(self, uid: str, user: int | None = None, *, forbidden: bool = False) -> None:
        """Changes the Pod's request, as the author or a new policy does."""
        self.denied.discard(uid)
        pod, problems = self.pods[uid], ("forbidden",) if forbidden else ()
        job = replace(pod.request.job, comment=f"edited {self.version}", user_id=user)
        self.write(pod._replace(request=replace(pod.request, job=job, problems=problems)))

    def annotate(self, uid: str) -> None:
        """Adds an annotation without a meaning for the extender."""
        pod = self.pods[uid]
        self.write(pod._replace(touch=pod.touch + 1))

    def forge(self, uid: str, attempt: int) -> None:
        """Writes another attempt onto a Pod, and the id of a job of this attempt. Every reader of the
        source code can compute the id."""
        pod = self.pods[uid]
        own, namespace, name, *_ = pod.workload
        key = PlaceholderKey(self.rules.cluster, namespace, name, own, attempt)
        job_id = key.job_id(self.rules.ids)
        allocation = pod.scheduling.allocation and replace(pod.scheduling.allocation, job_id=job_id)
        self.write(changed(pod, attempt=attempt, job_id=job_id, allocation=allocation))

    # Slurm

    def schedule(self) -> None:
        """Starts each job that fits, up to `jobs_per_node` on a node. A job over the owner's limit
        delays no other job."""
        for job in sorted(self.jobs.values(), key=lambda j: j.submit_time or 0):
            if not job.state.pending or job.held:
                continue
            if self.lacks_features:
                self.jobs[job.id] = replace(job, held=True, reason="BadConstraints", priority=0)
            elif not job.external and job.user_id in self.unknown_users:
                self.jobs[job.id] = held_without_credential(job)
            elif self._over_its_limit(job):
                self.jobs[job.id] = replace(job, reason="QOSMaxJobsPerUserLimit")
            elif len(free := self.free_nodes(job)) >= (job.node_count or 1):
                self._note_start(job)
                self._run(job, free[: job.node_count or 1])
            else:
                self.jobs[job.id] = replace(job, reason="Resources")

    def _over_its_limit(self, wanted: Job) -> bool:
        own = (j for j in self.jobs.values() if j.user_id == wanted.user_id and j.state.running)
        return wanted.user_id in self.may_run and sum(1 for _ in own) >= self.may_run[wanted.user_id]

    def _note_start(self, job: Job) -> None:
        uid = self.workload_of(job)
        if uid:
            self.started[uid] += 1

    def free_nodes(self, wanted: Job) -> list[str]:
        live = (job for job in self.jobs.values() if not (job.state.ended or job.state.suspended))
        used = Counter(name for job in live for name in job.nodes)
        allowed = tuple(dict.fromkeys(wanted.required_nodes)) or self.nodes
        free = [name for name in allowed if used[name] < self.jobs_per_node]
        return [name for name in free if name not in wanted.excluded_nodes]

    def fail_unanswered(self, submit: Submit) -> None:
        """Fails a job just after the start, because slurmctld cannot send the reply."""
        job = self.jobs.get(submit.job_id)
        if job is not None and job.state.running and job.admin_comment == submit.job.admin_comment:
            self.jobs[job.id] = replace(job, state=JobState("FAILED"))

    def end_job(self, job_id: int, base: str) -> None:
        job = self.jobs.get(job_id)
        if job is not None and not job.state.ended:
            self.jobs[job_id] = replace(job, state=JobState(base))

    def disturb(self, job_id: int, base: str) -> None:
        """Ends a job, as Slurm or an administrator does."""
        self._blame(self.jobs[job_id])
        self.end_job(job_id, base)

    def begin_grace(self, job_id: int) -> None:
        """Preempts a job. The job still runs for the GraceTime."""
        job = self.jobs[job_id]
        if job.state.running:
            self._blame(job)
            self.jobs[job_id] = replace(job, preempt_time=1 + int(self.now))

    def suspend(self, job_id: int) -> None:
        """Suspends a job, as the owner does with `scontrol suspend`. Slurm gives the cores to other
        jobs."""
        job = self.jobs[job_id]
        if job.state.running:
            self._blame(job)
            self.jobs[job_id] = replace(job, state=JobState("SUSPENDED"), suspend_time=1 + int(self.now))

    def resume(self, job_id: int) -> None:
        """Resumes a job, as the owner does with `scontrol resume`, even if another job has the cores
        now."""
        job = self.jobs[job_id]
        if job.state.suspended:
            self.jobs[job_id] = replace(job, state=JobState("RUNNING"))

    def read_jobs(self) -> None:
        """Reads the jobs of bound Pods."""
        for uid, job_id in self.ledger.bound_jobs().items():
            if job_id in self.jobs and job_id not in self.garbled:
                self.tell(JobRead(uid, self.jobs[job_id]))

    def _blame(self, job: Job) -> None:
        if job.id in self.submitted:
            self.disturbed.add(self.workload_of(job))

    def workload_of(self, job: Job) -> str:
        """Returns the uid of the workload for which a job was submitted; "" for a native job."""
        key = key_of(job)
        submitted = "" if job.name == NATIVE else self.submitted.get(job.id, "")
        return key.uid if key else submitted.partition("#")[0]

    def overwrite_key(self, job_id: int, text: str = "") -> None:
        """Runs an administrator's `scontrol update JobId=... AdminComment=...`."""
        self.jobs[job_id] = replace(self.jobs[job_id], admin_comment=text)

    def give_odd_name(self, job_id: int) -> None:
        """Runs the owner's `scontrol update JobId=... JobName=$'\\xff'`."""
        self.odd_names.add(job_id)
        self.jobs[job_id] = replace(self.jobs[job_id], name="\ufffd")

    def change_job(self, job_id: int, **changes: Any) -> None:
        """Changes a waiting job, as the owner does with `scontrol update`."""
        job = self.jobs[job_id]
        if job.state.pending:
            self.jobs[job_id] = replace(job, **changes)

    def running(self) -> list[int]:
        return sorted(job.id for job in self.jobs.values() if job.state.running)

    def start_native_job(self) -> None:
        """Submits a user's own job. The job starts if a node is free."""
        job = Job(self.next_id, JobState("PENDING"), name=NATIVE, submit_time=self.version)
        self.next_id += 1
        free = self.free_nodes(job)
        if free:
            self.jobs[job.id] = replace(job, state=JobState("RUNNING"), nodes=tuple(free[:1]))

    def save(self) -> None:
        self.saved, self.saved_at, self.next_saved = dict(self.jobs), self.now, self.next_id

    def may_be_killed(self) -> bool:
        """Returns True if the saved state is at most 5 s old, because slurmctld loses at most 5 s. After
        a longer loss, a restarted extender would not remember an ended job."""
        return self.saved is not None and self.now - self.saved_at <= 5.0

    def kill_slurmctld(self) -> None:
        """Kills slurmctld. slurmctld forgets all changes since the saved state."""
        assert self.saved is not None
        for job in self.jobs.values():
            # A job unknown to Slurm ends no Pod. But another replica may request the job on another Node
            # before the replica knows that the Pod is bound.
            if self.saved.get(job.id, None if self.shared else job) != job:
                self._blame(job)
        for job_id, job in self.saved.items():
            if not job.state.ended and job_id in self.jobs and self.jobs[job_id].state.ended:
                self.revived.add(job_id)
        self.jobs, self.next_id = dict(self.saved), self.next_saved

    def ask(self) -> None:
        """Reads the states of jobs for a poll. The ledger gets the states later."""
        asked = self.ledger.watched_jobs()
        states = {i: self._told_state(i) for i in asked if i in self.jobs}
        self.acting.poll = JobsPolled(asked, states, self.now)

    def _told_state(self, job_id: int) -> JobState:
        return UNREAD if job_id in self.garbled else self.jobs[job_id].state

    def answer(self) -> None:
        poll, self.acting.poll = self.acting.poll, None
        if poll is not None:
            self.tell(poll)

    # Effects

    def do(self, effect: Effect) -> object:
        """Carries out an effect and returns the result, as the dispatcher does."""
        match effect:
            case Submit() | ReadJob() | ExcludeNodes() | HoldJob() | CancelJob():
                return self._on_slurm(effect)
            case WriteAllocation():
                return self._patch(effect.pod, self._granted(effect))
            case WriteAttempt():
                anew = changed(effect.pod, attempt=effect.attempt, allocation=None, job_id=None)
                return self._patch(effect.pod, changed(anew, feasible_nodes=None))
            case RecordJobId():
                self.note_job(effect)
            case CheckDepartures():
                seconds = self.vacated_in.get(effect.node, 0.0)
                return seconds if seconds <= self.rules.leaves_within + 5.0 else 0.0
            case EvictPod():
                return self._evict(effect)
        return None

    def note_job(self, effect: RecordJobId) -> None:
        pod = self.pods.get(effect.pod.uid)
        if pod is not None:
            named = pod.scheduling.allocation and replace(
                effect.granted or pod.scheduling.allocation, job_id=effect.job_id
            )
            self.write(changed(pod, job_id=effect.job_id, attempt=effect.attempt, allocation=named))

    def _evict(self, effect: EvictPod) -> object:
        uid = effect.pod.uid
        current = self.pods.get(uid)
        old = current is not None and current.resource_version != effect.pod.resource_version
        same = current is not None and current.scheduling.attempt == effect.pod.scheduling.attempt
        if old and not (effect.in_any_version or (effect.in_this_attempt and same)):
            return Failure(Remedy.FRESHER, "the object has been modified")
        if current is not None:
            # If a group cannot be bound as a whole, all Pods of the group are evicted.
            partly = current.group is not None and any(
                not pod.life.node for pod in self.pods_of(effect.uid)
            )
            assert partly or effect.uid in self.disturbed, f"{effect.uid} is evicted without a cause"
        if uid in self.leaving:
            self.delete_pod(uid, effect.pod.life.eviction_grace)
        else:
            self.remove_pod(uid)
        return None

    def _on_slurm(self, effect: OnSlurm) -> object:
        match effect:
            case Submit():
                return self._submit(effect)
            case ReadJob():
                if effect.job_id in self.garbled:
                    return Failure(Remedy.AGAIN, "a reply that cannot be read")
                return self.jobs.get(effect.job_id)
            case ExcludeNodes():
                return self._exclude(effect)
            case HoldJob():
                return self._comment(effect)
            case CancelJob():
                return self._cancel(effect)

    def _comment(self, effect: HoldJob) -> object:
        job = self.jobs.get(effect.job_id)
        if job is None or job.state.ended:
            return Failure(Remedy.CHANGE, "no such job")
        self.jobs[job.id] = replace(job, comment=effect.comment)
        return None

    def _cancel(self, effect: CancelJob) -> object:
        job = self.jobs.get(effect.job_id)
        if job is None or job.state.ended:
            return None
        named = effect.name == job.name and job.id not in self.odd_names
        if effect.name is not None and not named:
            return Failure(Remedy.OTHER_JOB, f"Job name {job.name} != filter name {effect.name}")
        whose, asks = self.workload_of(job), effect.uid.partition("#")[0]
        assert whose == asks, f"job {job.id} of {whose} is cancelled"
        self.jobs[job.id] = replace(job, comment=effect.comment)
        self.end_job(effect.job_id, "CANCELLED")
        return None

    def _exclude(self, effect: ExcludeNodes) -> object:
        job = self.jobs.get(effect.job_id)
        if job is None or job.state.ended:
            return Failure(Remedy.CHANGE, "no such job")
        self.jobs[job.id] = replace(job, excluded_nodes=hostlist.names(effect.nodes))
        return None

    def _submit(self, effect: Submit) -> object:
        if effect.uid in self.denied:
            return Failure(Remedy.UNEXPLAINED, "Unspecified error")
        if effect.job.user_id in self.refusals:
            return self.refusals[effect.job.user_id]
        live = sum(not job.state.ended for job in self.jobs.values())
        if self.max_jobs is not None and live >= self.max_jobs:  # also for a duplicate
            return Failure(Remedy.LATER, "MaxJobCount limit reached")
        if effect.job_id in self.jobs:
            return Failure(Remedy.ID_TAKEN, "duplicate job id")
        self.submitted[effect.job_id] = effect.uid
        job = self._made(effect.uid, effect.job_id, effect.job)
        if not effect.immediate:
            self.jobs[job.id] = job
            return None
        return self._start_at_once(job, effect.job)

    def arrive(self, submit: Submit) -> None:
        """Delivers an overdue submission to Slurm."""
        before = set(self.jobs)
        self._submit(submit)
        self.late |= self.jobs.keys() - before

    def _made(self, uid: str, job_id: int, asked: JobSpec) -> Job:
        job = Job(
            job_id,
            JobState("PENDING"),
            name=asked.name,
            partition=asked.partition or "main",
            cpus_per_node=asked.cpus,
            cpus_allocated=asked.cpus * (asked.tasks or asked.nodes),
            memory_mb=asked.memory_mb if asked.tasks is None else None,
            memory_per_cpu_mb=None if asked.tasks is None else asked.memory_per_cpu_mb,
            tres_per_node=",".join(f"gres/{name}:{count}" for name, count in asked.gres),
            tasks=asked.tasks or asked.nodes,
            node_count=_nodes_of(asked),
            time_limit_minutes=asked.time_limit_minutes,
            user_id=self._owner(asked)[0],
            group_id=self._owner(asked)[1],
            comment=asked.comment or "",
            admin_comment="" if self.overwrites_keys else asked.admin_comment,
            required_nodes=hostlist.names(asked.required_nodes),
            excluded_nodes=hostlist.names(asked.excluded_nodes),
            reason="Resources",
            submit_time=self.version,
            sluid=f"s{self.version}",
            external=self.external,
        )
        job = replace(job, **self.rewrites)
        self.version += 1
        forbidden = any(pod.request.problems for pod in self.pods_of(uid))
        if self.other is not None and forbidden:
            self.late.add(job.id)
        return job

    def _start_at_once(self, job: Job, asked: JobSpec) -> Grant | Failure | None:
        free = self.free_nodes(job)
        if len(free) < _nodes_of(asked) or any(j.state.pending for j in self.jobs.values()):
            self.jobs[job.id] = replace(job, state=JobState("FAILED"))
            return Failure(Remedy.NO_ROOM, "no room")
        self._note_start(job)
        given = self._run(job, free[: _nodes_of(asked)]).grant
        if asked.gres and not self.numbers:
            devices = ",".join(f"{name}:{count}" for name, count in asked.gres)
            given = replace(given, gres=(devices,) * len(given.nodes))
        return given if self.tells_grants else None

    def _run(self, job: Job, nodes: Iterable[str]) -> Job:
        job = replace(job, state=JobState("RUNNING"), nodes=tuple(nodes))
        self.started_at[job.id] = self.now
        if self.numbers:
            self.given += 1
            gpus, cores = (f"gpu:1(IDX:{self.given // 2})",), (str(self.given),)
            job = replace(job, gres=gpus * len(job.nodes), cores=cores * len(job.nodes))
            there = [pod for pod, _ in self.nodes_in_use() if pod.workload.uid == self.workload_of(job)]
            self.disturbed.update(pod.workload.uid for pod in there)
        if job.memory_per_cpu_mb is not None:
            job = self._packed(job, job.tasks or 0)
        self.jobs[job.id] = job
        return job

    def _packed(self, job: Job, tasks: int) -> Job:
        """Returns a running job with cores for two tasks on each node. No cores are ever given twice."""
        left, here, cores = tasks, list[int](), list[str]()
        for name in job.nodes:
            here.append(job.required_nodes.count(name) or min(PACKED, left))
            left -= here[-1]
            self.given += 1
            first = self.given * PACKED
            cores.append(f"{first}-{first + here[-1] - 1}" if here[-1] > 1 else str(first))
        return replace(job, gres=(), cores=tuple(cores), cpus=tuple(here))

    def _owner(self, asked: JobSpec) -> tuple[int, int]:
        user = asked.user_id or 0
        return self.gives_to or (user, user if asked.group_id is None else asked.group_id)

    def _granted(self, effect: WriteAllocation) -> Pod:
        """Returns the Pod with a new allocation, and without the rejection of the earlier allocation."""
        pod, allocation = effect.pod, effect.allocation
        pod = pod if effect.attempt is None else changed(pod, attempt=effect.attempt)
        fresh = changed(pod, feasible_nodes=None, looked_at=False, node_rejection="", lacks_room=False)
        return changed(fresh, gates=pod.other_gates, allocation=allocation, job_id=allocation.job_id)

    def _patch(self, seen: Pod, wanted: Pod) -> object:
        current = self.pods.get(seen.uid)
        if current is None:
            return Failure(Remedy.GONE, "not found")
        if current.resource_version != seen.resource_version:
            return Failure(Remedy.FRESHER, "the object has been modified")
        if wanted != current:  # kube-apiserver makes no new version without a change
            self.write(wanted)
        return self.pods[seen.uid].resource_version

    def finish(self, effect: Effect, result: object) -> None:
        self.tell(Outcome(effect, result))

    def settle(self) -> list[Effect]:
        """Delivers all news, and carries out all effects. Returns the effects."""
        done: list[Effect] = []
        while self.news or self.effects:
            if self.news:
                self.hear()
                continue
            effect = self.effects.pop(0)
            done.append(effect)
            self.carry_out(effect)
        return done

    def catch_up_with_slurm(self) -> None:
        """Delivers all news, and carries out all effects. Then Slurm starts the jobs that fit."""
        self.settle()
        self.start_and_poll()

    def catch_up(self) -> None:
        """Runs `catch_up_with_slurm`, and then lets kube-scheduler bind the Pods."""
        self.catch_up_with_slurm()
        for uid in sorted(self.pods):
            self.bind(uid)
        self.settle()

    # Steps that tests share

    def hear_all(self) -> None:
        while self.news:
            self.hear()

    def poll_alone(self) -> None:
        """Polls the states of jobs. Does not carry out the effects."""
        self.ask()
        self.answer()

    def poll(self) -> list[Effect]:
        """Polls the states of jobs, and carries out the effects. Returns the effects."""
        self.poll_alone()
        return self.settle()

    def wait(self, seconds: float, times: int = 1) -> list[Effect]:
        """Lets time pass, `times` times, and carries out the effects each time. Returns the effects."""
        done: list[Effect] = []
        for _ in range(times):
            self.pass_time(seconds)
            done += self.settle()
        return done

    def wait_and_poll(self, seconds: float) -> list[Effect]:
        self.pass_time(seconds)
        return self.poll()

    def change_pod(self, uid: str, **changes: Any) -> None:
        self.write(changed(self.pods[uid], **changes))

    def change_and_settle(self, uid: str, **changes: Any) -> list[Effect]:
        self.change_pod(uid, **changes)
        return self.settle()

    def change_request(self, uid: str, **changes: Any) -> None:
        """Changes the requested job, as the Pod's author does."""
        request = self.pods[uid].request
        job = replace(request.job, **changes)
        self.write(self.pods[uid]._replace(request=replace(request, job=job)))

    def write_and_settle(self, pod: Pod) -> list[Effect]:
        self.write(pod)
        return self.settle()

    def tell_and_settle(self, event: Event) -> list[Effect]:
        self.tell(event)
        return self.settle()

    def bind_and_settle(self, uid: str) -> list[Effect]:
        self.bind(uid)
        return self.settle()

    def remove_and_settle(self, uid: str) -> list[Effect]:
        self.remove_pod(uid)
        return self.settle()

    def restart_and_settle(self) -> list[Effect]:
        self.restart()
        return self.settle()

    def poll_until_lost(self) -> None:
        """Polls until a job counts as lost, because Slurm does not know the job. Does not carry out the
        effects."""
        for _ in range(self.rules.confirmations):
            self.poll_alone()

    def start_and_poll(self) -> list[Effect]:
        """Starts the jobs that fit, polls, and carries out the effects. Returns the effects."""
        self.schedule()
        return self.poll()

    def outlast(self, seconds: int) -> list[Effect]:
        """Lets time pass with a poll in each second. Returns the effects."""
        done: list[Effect] = []
        for _ in range(seconds):
            done += self.wait_and_poll(1.0)
        return done

    def settle_refused(self, uid: str) -> list[Effect]:
        """Lets kube-scheduler reject the Node without an offer, and waits until every replica has had
        the time for a report."""
        self.refuse(uid, offers=False)
        return self.settle() + self.wait(0.3)

    def take(self, kind: type[E]) -> E:
        """Takes the only effect of a kind from the effects in progress: the test decides the outcome."""
        (effect,) = of_kind(self.effects, kind)
        self.effects.remove(effect)
        return effect

    def lose_job(self, uid: str, base: str) -> None:
        """Ends a Pod's job, as Slurm or an administrator does, and polls. Does not carry out the
        effects."""
        self.disturb(self.job_id_of(uid), base)
        self.poll_alone()

    def carry_out(self, effect: Effect) -> None:
        self.finish(effect, self.do(effect))

    def carry_out_all(self) -> None:
        """Carries out the effects in progress, and the effects of the outcomes. Delivers no news."""
        while self.effects:
            self.carry_out(self.effects.pop(0))

    def forget_the_start(self, uid: str, **changes: Any) -> int:
        """Kills slurmctld before slurmctld has saved the start of this Pod's job."""
        job = self.job_of(uid)
        self.jobs[job.id] = replace(job, state=JobState("PENDING"), nodes=(), **changes)
        self.disturbed.add(uid)
        return job.id

    def forget_the_job(self, uid: str) -> int:
        """Kills slurmctld before slurmctld has saved the submission."""
        return self.jobs.pop(self.job_id_of(uid)).id

    def record(self, uid: str) -> Placeholder:
        return next(each for each in self.ledger.placeholders if each.uid == uid)

    def state_of(self, uid: str) -> State | None:
        return next((each.state for each in self.ledger.placeholders if each.uid == uid), None)

    def shown(self, uid: str) -> Cause:
        """Returns the cause in the condition of a Pod without a group."""
        shown = self.record(uid).members[0].shown
        assert shown is not None
        return shown

    def job_of(self, uid: str) -> Job:
        (job,) = self.live_jobs(uid)
        return job

    def job_id_of(self, uid: str) -> int:
        return self.job_of(uid).id

    def allocation_of(self, uid: str) -> Allocation:
        allocation = self.pods[uid].scheduling.allocation
        assert allocation is not None
        return allocation

    def refusal_of(self, uid: str) -> Cause:
        """Returns the cause that the author of a refused Pod reads."""
        told = of_kind(self.settle() + self.poll(), ReportWaiting)
        assert self.state_of(uid) is State.INVALID
        return [each.cause for each in told if each.uid == uid][-1]

    # Invariants

    def live_jobs(self, uid: str) -> list[Job]:
        return [j for j in self.jobs.values() if not j.state.ended and self.workload_of(j) == uid]

    def nothing_forbidden_is_asked(self, effects: Iterable[Effect]) -> None:
        """Checks that the ledger submits no job for a forbidden request. A bound Pod is an exception:
        the request at the time of the Binding counts."""
        asked = {effect.uid for effect in effects if isinstance(effect, Submit)}
        for record in self.ledger.placeholders if asked else ():
            if record.uid in asked and record.state is not State.BOUND:
                assert not record.request.problems, f"{record.uid} is submitted"

    def uids(self) -> set[str]:
        return {self.workload_of(job) for job in self.jobs.values()} - {""}

    def no_two_live_jobs(self) -> None:
        live = dict[str, list[Job]]()
        for job in self.jobs.values():
            if not job.state.ended and (uid := self.workload_of(job)):
                live.setdefault(uid, []).append(job)
        for uid, jobs in live.items():
            if len(jobs) > 1:
                ids = [job.id for job in jobs if not self._will_be_swept(job)]
                assert len(ids) <= 1, f"invariant I1: {uid} has {ids}"

    def _will_be_swept(self, job: Job) -> bool:
        """Returns True if the ledger ends the job at the next news or sweep. Such jobs come from a
        killed slurmctld, or from a second replica with another attempt."""
        key = key_of(job)
        pods = self.pods_of(key.uid) if key else ()
        attempt = max((pod.scheduling.attempt for pod in pods), default=None)
        over = self.shared and key is not None and (attempt is None or key.attempt < attempt)
        over = over or (key is not None and bool(pods) and not self._may_have(key, job))
        return over or job.id in self.revived | self.late

    def nobody_gets_a_node_before_its_pod_is_gone(self) -> None:
        """Checks that each Pod on a Node without a running job there holds the Node (`prolog_gate`). A
        new replica cannot know a Pod deleted by force if the Pod's job has no key."""
        running = {job_id for job_id, job in self.jobs.items() if job.state.running}
        keyless = {self.workload_of(job) for job in self.jobs.values() if key_of(job) is None}
        for pod, node in self.nodes_in_use():
            workload = pod.workload.uid
            if pod.uid not in self.pods and workload in keyless:
                continue
            jobs = [job for job in self.live_jobs(workload) if job.id in running and node in job.nodes]
            held = [p for p in self.ledger.holding(node) if p.workload.uid == workload]
            told = any(
                each.state not in (State.ALLOCATED, State.BOUND) or each.job.id not in running
                for each in held
            )
            assert jobs or told, f"invariant I4: {pod.name} on {node} holds nothing: {held}"

    def unbound(self) -> Iterator[Pod]:
        return (pod for pod in self.pods.values() if pod.life.node is None)


def written_time(number: int) -> str:
    """Returns a time as kube-apiserver writes times. The number counts the created Pods."""
    return f"{datetime.fromtimestamp(number, UTC):%FT%TZ}"


def _nodes_of(asked: JobSpec) -> int:
    """Returns the number of nodes that Slurm gives to a job."""
    if asked.tasks is None:
        return asked.nodes
    return len(set(asked.required_nodes)) or max(asked.nodes, -(-asked.tasks // PACKED))


def held_without_credential(job: Job) -> Job:
    """Returns a batch job that slurmctld holds, because slurmctld cannot resolve the job's user."""
    words = "slurm_cred_create failure, holding job."
    return replace(job, held=True, reason="JobHeldAdmin", restart_count=1, system_comment=words)


def calm_down(world: World, rounds: int = 120) -> None:
    """Lets time pass without any losses, delays or refusals."""
    world.max_jobs = None
    world.may_run.clear()
    world.overwrites_keys, world.rewrites = False, {}
    for job in [job for job in world.jobs.values() if job.name == NATIVE]:
        world.end_job(job.id, "COMPLETED")
    for number in range(rounds):
        if number % 30 == 0:
            world.sweep()
        world.settle()
        world.schedule()
        for uid in sorted(world.pods):
            world.bind(uid)
        world.ask()
        world.answer()
        world.read_jobs()
        world.pass_time(1.0)


def nothing_is_held_in_vain(world: World) -> None:
    for pod in world.pods.values():
        if pod.life.node is None and world.cannot_be_bound(pod.uid) and not world.is_kept_out(pod):
            live = world.live_jobs(pod.workload.uid)
            useless = [job for job in live if pod.scheduling.obstacle or job.state.running]
            assert not useless, f"{pod.name} has a job and cannot be bound"


def ends_well(world: World) -> None:
    nothing_is_held_in_vain(world)
    for pod in world.pods.values():
        together = [each for each in world.pods_of(pod.workload.uid) if not world.is_kept_out(each)]
        if world.is_kept_out(pod):
            assert is_rightly_kept_out(world, pod, together), f"{pod.name} could be one of its group"
            assert not pod.life.node, f"{pod.name} is bound, and is not one of its group"
        elif pod.life.finished:
            assert not world.live_jobs(pod.workload.uid), f"the job of {pod.name} outlived its Pod"
        elif pod.life.node or not any(world.cannot_be_bound(each.uid) for each in together):
            has_one_job(world, pod, together)
    for uid in world.uids() - set(world.workloads()):
        # a job without the key has no known owner
        left = [job for job in world.live_jobs(uid) if key_of(job) is not None]
        assert not left, f"the job of {uid} outlived its Pod"


def is_rightly_kept_out(world: World, pod: Pod, together: list[Pod]) -> bool:
    """Returns True if the group is full, or has begun and cannot take another Pod: another request, a
    forbidden request, or a lost job."""
    begun = any(each.life.node for each in together)
    if len(together) == pod.workload.size or not begun:
        return begun or len(together) == pod.workload.size
    unlike = pod.workload.request([each.request for each in (*together, pod)]).problems
    later = pod.scheduling.attempt > max(each.scheduling.attempt for each in together)
    runs = any(job.state.running for job in world.live_jobs(pod.workload.uid))
    return bool(unlike) or later or not runs


def has_what_its_job_has(world: World, pod: Pod, job: Job) -> None:
    """Checks the slot on a Pod, because the node agent limits the Pod to this slot."""
    stands = pod.scheduling.allocation
    if world.numbers and stands is not None:
        number = job.nodes.index(stands.node)
        has = job.gres[number] if job.gres else "", job.cores[number]
        if job.cpus:
            own, of_job = (set(number_list.expand(cores)) for cores in (stands.cores, has[1]))
            assert own, f"{pod.name} has no cores"
            assert own <= of_job, f"{pod.name} runs on other cores than its job has"
            for other, node in world.nodes_in_use():
                theirs = other.scheduling.allocation if node == stands.node else None
                if theirs is not None and other.uid != pod.uid:
                    both = own.intersection(number_list.expand(theirs.cores))
                    assert not both, f"{pod.name} and {other.name} run on the same cores"
            return
        assert (stands.gres, stands.cores) == has, f"{pod.name} runs on others than its job has"


def has_one_job(world: World, pod: Pod, together: list[Pod]) -> None:
    workload = pod.workload
    live = world.live_jobs(workload.uid)
    if pod.life.node is None and len(together) < workload.size:
        if world.shared:  # without the key, the owner of another replica's job is unknown
            live = [job for job in live if key_of(job) is not None]
        assert not live, f"{pod.name} waits for the others of its group, and has a job"
        return
    problems = workload.request([each.request for each in together]).problems
    if pod.life.node is None and problems:
        assert not live, f"{pod.name} has a job that is forbidden"
        return
    if problems and not live:  # a later leader requests no job for a forbidden Pod
        return
    if workload.uid in world.denied and not live:
        of_pod = (p for p in world.ledger.placeholders if p.uid == pod.uid)
        told = [p for p in of_pod if p.state is State.INVALID or p.has_lost_job]
        assert told or pod.life.node, f"{pod.name} is not told that Slurm refuses it"
        return
    assert len(live) == 1, f"{pod.name} is left without a placeholder: {pod}"
    known = [p.job.id for p in world.ledger.placeholders if p.uid == workload.uid]
    assert known == [live[0].id], f"{pod.name} is not watched: {known}"
    if pod.life.node is not None and live[0].state.pending:  # the job was lost, and its place is taken
        assert pod.life.node in live[0].required_nodes, f"{pod.name} may be given another Node"
    elif pod.life.node is not None:
        assert pod.life.node in live[0].nodes, f"{pod.name} is bound elsewhere"
        assert live[0].suspend_time is None, f"another job may have the cores of {pod.name}"
        assert live[0].state.running
        has_what_its_job_has(world, pod, live[0])
    else:
        assert live[0].state.pending, f"{pod.name} is not bound though its job runs"
        owner = pod.request.job.user_id
        assert owner in (None, live[0].user_id), f"{pod.name} waits as another's"
