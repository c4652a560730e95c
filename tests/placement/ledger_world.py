"""Both systems, reduced to what the ledger can tell of them: a world for it to be wrong about.

Every effect may be lost, or done with its reply lost; what the ledger is told may come late. The world
itself keeps the books on what must never happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from extender.bind.binder import NotBound, verified
from extender.placement.audit import may_have_no_job
from extender.placement.cluster import ClusterView
from extender.placement.events import (
    CancelJob,
    ClusterObserved,
    Effect,
    Event,
    EvictPod,
    ExcludeNodes,
    Failure,
    GraceStarted,
    JobsPolled,
    LookAtNode,
    NoteJob,
    OrphanFound,
    Outcome,
    PodObserved,
    PodVanished,
    ReadJob,
    Recovered,
    Remedy,
    Submit,
    Tick,
    WriteAllocation,
    WriteAttempt,
)
from extender.placement.identity import PlaceholderKey
from extender.placement.ledger import Ledger
from extender.placement.node_constraints import Node, NodeConstraints
from extender.placement.placeholder import State
from extender.placement.recovery import to_read
from extender.placement.rules import Rules
from extender.placement.workload import GATE, Allocation, Offer, Pod, Request
from slurm_client.model import Grant, Job, JobSpec, JobState, Partition

NODES = ("n1", "n2")
VIEW = ClusterView(
    cluster=Rules().cluster,
    nodes={name: Node(name, name, {}) for name in NODES},
    partitions={"main": Partition("main", NODES, default=True)},
    preemption=False,
)
REQUEST = Request(JobSpec("default/p", 1, 1), NodeConstraints({}, None, ()))
LOST = Failure(Remedy.AGAIN, "the reply was lost")


def job_state(base: str) -> JobState:
    return JobState(base)


@dataclass
class Replica:
    """One extender: what it knows, what it is doing, and the news that is on its way to it."""

    ledger: Ledger
    effects: list[Effect] = field(default_factory=list)
    news: list[Event] = field(default_factory=list)
    poll: JobsPolled | None = None


@dataclass
class World:
    """Kubernetes, Slurm, a kube-scheduler, and one ledger between them."""

    rules: Rules = field(default_factory=lambda: Rules(avoid=20.0, offer=10.0))
    now: float = 0.0
    pods: dict[str, Pod] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    saved: dict[int, Job] | None = None
    saved_at: float = 0.0
    revived: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    """Jobs that one of two replicas asked for when the Pod might not be placed any more, and it had not
    heard of that."""
    shared: bool = False
    """Whether there were ever two that believed to lead."""
    disturbed: set[str] = field(default_factory=set)
    """Pods whose job ended, or was forgotten, by no doing of the ledger's: only those may be evicted."""
    acting: Replica = field(init=False)
    """The replica whose turn it is."""
    other: Replica | None = None
    """Another one that believes that it leads."""
    bindings: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Bindings that are on their way: the Pod's version and the Node, by uid."""
    vacated_in: dict[str, float] = field(default_factory=dict)
    """Nodes that Pods are leaving, and how long that takes."""
    max_jobs: int | None = None
    """Slurm's limit on jobs."""
    tells_grants: bool = True
    """Whether what was granted at once is known at once too."""
    gives_to: tuple[int, int] | None = None
    """The user and group that Slurm gives every queued job to, whatever it is asked."""
    made: int = 0
    version: int = 0

    def __post_init__(self) -> None:
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
        """Another replica takes over while this one does not know yet that it leads no more."""
        deposed, self.shared = self.acting, True
        self.restart()
        self.other = deposed

    def swap(self) -> None:
        """The other replica acts."""
        assert self.other is not None
        self.acting, self.other = self.other, self.acting

    def _announce(self, event: Event) -> None:
        for replica in (self.acting, self.other):
            if replica is not None:
                replica.news.append(event)

    def tell(self, event: Event) -> None:
        effects = self.ledger.apply(event, self.now)
        self.nothing_forbidden_is_asked(effects)
        self.effects.extend(effects)
        self.no_two_live_jobs()

    def restart(self) -> None:
        """A new extender, which knows nothing, reads both systems."""
        self.acting, self.saved = Replica(Ledger(self.rules)), None
        self.tell(ClusterObserved(VIEW))
        keys = {job.id: PlaceholderKey.parse(job.admin_comment) for job in self.jobs.values()}
        states = {job.id: job.state for job in self.jobs.values()}
        read = set(to_read(self.pods.values(), states, self.rules))
        for pod in tuple(self.pods.values()):
            mine = (
                j
                for j in self.jobs.values()
                if (key := keys[j.id]) and key.uid == pod.uid and j.id in read
            )
            self.tell(Recovered(pod, tuple(mine)))
        for job in tuple(self.jobs.values()):
            key = keys[job.id]
            if key is not None and key.uid not in self.pods and not job.state.ended:
                self.tell(OrphanFound(key, job.id))
        self.tell(ClusterObserved(VIEW))

    def sweep(self) -> None:
        """Live jobs that the ledger does not know, of Pods that are gone or have moved on, are ended."""
        known = {p.job_id for p in self.ledger.placeholders}
        for job in tuple(self.jobs.values()):
            key = PlaceholderKey.parse(job.admin_comment)
            if key is None or job.state.ended or job.id in known:
                continue
            pod = self.pods.get(key.uid)
            if pod is None or pod.attempt > key.attempt or may_have_no_job(pod):
                self.tell(OrphanFound(key, job.id))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.tell(Tick())

    # Kubernetes

    def create_pod(self, priority: int = 0, request: Request = REQUEST) -> str:
        self.made += 1
        uid = f"u{self.made}"
        pod = Pod(uid, "default", f"p{self.made}", "0", request, f"{self.made:04}", priority, (GATE,))
        self.write(pod)
        return uid

    def write(self, pod: Pod) -> None:
        self.version += 1
        pod = replace(pod, resource_version=str(self.version))
        self.pods[pod.uid] = pod
        self._announce(PodObserved(pod))

    def remove_pod(self, uid: str, *, seen: bool = True) -> None:
        if self.pods.pop(uid, None) is not None:
            self._announce(PodVanished(uid, seen))

    def hear(self) -> None:
        """The watch delivers its oldest undelivered change."""
        if self.news:
            self.tell(self.news.pop(0))

    def bind(self, uid: str) -> None:
        """kube-scheduler binds, through what /bind checks."""
        self.begin_binding(uid)
        self.finish_binding(uid)

    def begin_binding(self, uid: str) -> None:
        """/bind reads both, and is about to post the Binding."""
        pod = self.pods.get(uid)
        if pod is None or pod.gated or pod.node or pod.allocation is None:
            return
        job = self.jobs.get(pod.allocation.job_id)
        try:
            granted = verified(pod, job, pod.allocation.node, VIEW)
        except NotBound:
            return
        self.bindings[uid] = pod.resource_version, granted.node

    def finish_binding(self, uid: str) -> None:
        """The Binding arrives: it counts for that version of the Pod only."""
        version, node = self.bindings.pop(uid, ("", ""))
        pod = self.pods.get(uid)
        if pod is not None and pod.resource_version == version:
            self.write(replace(pod, node=node))

    def nodes_in_use(self) -> Iterator[tuple[Pod, str]]:
        """Pods that are bound, or whose Binding is on its way, with their Nodes."""
        for pod in self.pods.values():
            version, node = self.bindings.get(pod.uid, ("", ""))
            if pod.node or version == pod.resource_version:
                yield pod, pod.node or node

    def refuse(self, uid: str, *, offers: bool) -> None:
        """kube-scheduler will not have the allocated Node, and has another to offer or none."""
        pod = self.pods[uid]
        if pod.gated or pod.node or pod.allocation is None:
            return
        others = tuple(name for name in NODES if name != pod.allocation.node)
        offered = Offer(pod.allocation.job_id, others) if offers else None
        self.write(replace(pod, looked_at=True, unschedulable=True, offered=offered))

    def edit(self, uid: str, user: int | None = None, *, forbidden: bool = False) -> None:
        """The Pod's author asks for something else, or the policy has become another."""
        pod, problems = self.pods[uid], ("forbidden",) if forbidden else ()
        job = replace(pod.request.job, comment=f"edited {self.version}", user_id=user)
        self.write(replace(pod, request=replace(pod.request, job=job, problems=problems)))

    # Slurm

    def schedule(self) -> None:
        """Slurm starts what fits: one job a node."""
        for job in sorted(self.jobs.values(), key=lambda j: j.submit_time or 0):
            free = self.free_nodes(job)
            if job.state.pending and free:
                self.jobs[job.id] = replace(job, state=job_state("RUNNING"), nodes=(free[0],))

    def free_nodes(self, wanted: Job) -> list[str]:
        used = {job.nodes[0] for job in self.jobs.values() if not job.state.ended and job.nodes}
        allowed = wanted.required_nodes or NODES
        return [name for name in allowed if name not in used and name not in wanted.excluded_nodes]

    def end_job(self, job_id: int, base: str) -> None:
        job = self.jobs.get(job_id)
        if job is not None and not job.state.ended:
            self.jobs[job_id] = replace(job, state=job_state(base))

    def disturb(self, job_id: int, base: str) -> None:
        """Slurm, or an admin, ends a job."""
        self._blame(self.jobs[job_id])
        self.end_job(job_id, base)

    def begin_grace(self, job_id: int) -> None:
        """Slurm preempts a job, which runs on for its GraceTime."""
        job = self.jobs[job_id]
        if job.state.running:
            self._blame(job)
            self.jobs[job_id] = replace(job, preempt_time=1 + int(self.now))

    def read_graces(self) -> None:
        """The jobs of bound Pods are read, and those that are being preempted told."""
        for record in [p for p in self.ledger.placeholders if p.state is State.BOUND]:
            job = self.jobs.get(record.job_id or 0)
            if job is not None and job.preempt_time is not None:
                self.tell(GraceStarted(record.pod.uid, job))

    def _blame(self, job: Job) -> None:
        key = PlaceholderKey.parse(job.admin_comment)
        if key is not None:
            self.disturbed.add(key.uid)

    def running(self) -> list[int]:
        return sorted(job.id for job in self.jobs.values() if job.state.running)

    def save(self) -> None:
        self.saved, self.saved_at = dict(self.jobs), self.now

    def may_be_killed(self) -> bool:
        """slurmctld forgets up to 5 s; a tombstone that a restart of ours lost is another matter."""
        return self.saved is not None and self.now - self.saved_at <= 5.0

    def kill_slurmctld(self) -> None:
        """What was done since the state was saved is forgotten."""
        assert self.saved is not None
        for job in self.jobs.values():
            # One that is not known at all ends no Pod; but another replica, which has yet to hear that
            # the Pod is bound, may ask for it elsewhere.
            if self.saved.get(job.id, None if self.shared else job) != job:
                self._blame(job)
        for job_id, job in self.saved.items():
            if not job.state.ended and job_id in self.jobs and self.jobs[job_id].state.ended:
                self.revived.add(job_id)
        self.jobs = dict(self.saved)

    def ask(self) -> None:
        """A poll reads the states; they are told later."""
        asked = self.ledger.watched_jobs()
        states = {i: self.jobs[i].state for i in asked if i in self.jobs}
        self.acting.poll = JobsPolled(asked, states, self.now)

    def answer(self) -> None:
        poll, self.acting.poll = self.acting.poll, None
        if poll is not None:
            self.tell(poll)

    # Effects

    def do(self, effect: Effect) -> object:
        """Carries an effect out and returns its result, as the dispatcher would."""
        match effect:
            case Submit() | ReadJob() | ExcludeNodes() | CancelJob():
                return self._on_slurm(effect)
            case WriteAllocation():
                return self._patch(effect.pod, self._granted(effect.pod, effect.allocation))
            case WriteAttempt():
                anew = replace(effect.pod, attempt=effect.attempt, allocation=None, job_id=None)
                return self._patch(effect.pod, replace(anew, offered=None, unschedulable=False))
            case NoteJob():
                self.note_job(effect)
            case LookAtNode():
                return self.vacated_in.get(effect.node, 0.0)
            case EvictPod():
                return self._evict(effect)
        return None

    def note_job(self, effect: NoteJob) -> None:
        pod = self.pods.get(effect.uid)
        if pod is not None:
            named = pod.allocation and replace(pod.allocation, job_id=effect.job_id)
            self.write(replace(pod, job_id=effect.job_id, allocation=named))

    def _evict(self, effect: EvictPod) -> object:
        current = self.pods.get(effect.uid)
        if current is not None and current.resource_version != effect.pod.resource_version:
            return Failure(Remedy.FRESHER, "the object has been modified")
        if current is not None:
            assert effect.uid in self.disturbed, f"{effect.uid} is evicted without a cause"
        self.remove_pod(effect.uid)
        return None

    def _on_slurm(self, effect: Submit | ReadJob | ExcludeNodes | CancelJob) -> object:
        match effect:
            case Submit():
                return self._submit(effect)
            case ReadJob():
                return self.jobs.get(effect.job_id)
            case ExcludeNodes():
                return self._exclude(effect)
            case CancelJob():
                self._cancel(effect)
        return None

    def _cancel(self, effect: CancelJob) -> None:
        job = self.jobs.get(effect.job_id)
        if job is not None:
            key = PlaceholderKey.parse(job.admin_comment)
            whose = key.uid if key else "somebody else"
            assert whose == effect.uid.partition("#")[0], f"job {job.id} of {whose} is cancelled"
            self.jobs[job.id] = replace(job, comment=effect.comment)
        self.end_job(effect.job_id, "CANCELLED")

    def _exclude(self, effect: ExcludeNodes) -> object:
        job = self.jobs.get(effect.job_id)
        if job is None or job.state.ended:
            return Failure(Remedy.CHANGE, "no such job")
        self.jobs[job.id] = replace(job, excluded_nodes=effect.nodes)
        return None

    def _submit(self, effect: Submit) -> object:
        live = sum(not job.state.ended for job in self.jobs.values())
        if self.max_jobs is not None and live >= self.max_jobs:  # also for a duplicate
            return Failure(Remedy.LATER, "MaxJobCount limit reached")
        if effect.job_id in self.jobs:
            return Failure(Remedy.ID_TAKEN, "duplicate job id")
        job = Job(
            effect.job_id,
            job_state("PENDING"),
            user_id=self._owner(effect.job)[0],
            group_id=self._owner(effect.job)[1],
            comment=effect.job.comment or "",
            admin_comment=effect.job.admin_comment,
            required_nodes=effect.job.required_nodes,
            excluded_nodes=effect.job.excluded_nodes,
            reason="Resources",
            submit_time=self.version,
        )
        self.version += 1
        key, pod = PlaceholderKey.parse(job.admin_comment), self.pods.get(effect.uid)
        if key is not None and pod is not None and self.other is not None and pod.request.problems:
            self.late.add(job.id)
        if not effect.immediate:
            self.jobs[job.id] = job
            return None
        free = self.free_nodes(job)
        if not free or any(j.state.pending for j in self.jobs.values()):
            self.jobs[job.id] = replace(job, state=job_state("FAILED"))
            return Failure(Remedy.NO_ROOM, "no room")
        self.jobs[job.id] = replace(job, state=job_state("RUNNING"), nodes=(free[0],))
        return Grant((free[0],)) if self.tells_grants else None

    def _owner(self, asked: JobSpec) -> tuple[int, int]:
        user = asked.user_id or 0
        return self.gives_to or (user, user if asked.group_id is None else asked.group_id)

    def _granted(self, pod: Pod, allocation: Allocation) -> Pod:
        """The refusal of an earlier allocation is taken off the Pod with it."""
        fresh = replace(pod, offered=None, looked_at=False, unschedulable=False)
        return replace(fresh, gates=pod.other_gates, allocation=allocation, job_id=allocation.job_id)

    def _patch(self, seen: Pod, wanted: Pod) -> object:
        current = self.pods.get(seen.uid)
        if current is None:
            return Failure(Remedy.GONE, "not found")
        if current.resource_version != seen.resource_version:
            return Failure(Remedy.FRESHER, "the object has been modified")
        self.write(wanted)
        return self.pods[seen.uid].resource_version

    def finish(self, effect: Effect, result: object) -> None:
        self.tell(Outcome(effect, result))

    def settle(self) -> list[Effect]:
        """All is heard and done that there is; returns what was done."""
        done: list[Effect] = []
        while self.news or self.effects:
            if self.news:
                self.hear()
                continue
            effect = self.effects.pop(0)
            done.append(effect)
            self.finish(effect, self.do(effect))
        return done

    def catch_up(self) -> None:
        """All is heard and done that there is, Slurm starts what fits, and Pods are bound."""
        self.settle()
        self.schedule()
        self.ask()
        self.answer()
        self.settle()
        for uid in sorted(self.pods):
            self.bind(uid)
        self.settle()

    # What must hold

    def live_jobs(self, uid: str) -> list[Job]:
        keyed = ((PlaceholderKey.parse(j.admin_comment), j) for j in self.jobs.values())
        return [j for key, j in keyed if key and key.uid == uid and not j.state.ended]

    def nothing_forbidden_is_asked(self, effects: Iterable[Effect]) -> None:
        """Only for a Pod that runs, by what was allowed when it was bound."""
        asked = {effect.uid for effect in effects if isinstance(effect, Submit)}
        for record in self.ledger.placeholders if asked else ():
            if record.pod.uid in asked and record.state is not State.BOUND:
                assert not record.pod.request.problems, f"{record.pod.uid} is submitted"

    def uids(self) -> set[str]:
        keys = (PlaceholderKey.parse(j.admin_comment) for j in self.jobs.values())
        return {key.uid for key in keys if key}

    def no_two_live_jobs(self) -> None:
        for uid in self.uids():
            live = [job for job in self.live_jobs(uid) if not self._will_be_swept(job)]
            assert len(live) <= 1, f"invariant I1: {uid} has {[j.id for j in live]}"

    def _will_be_swept(self, job: Job) -> bool:
        """What a killed slurmctld brings back, and what one of two replicas asked for when the other
        was at another attempt: it is ended as soon as it is heard of, or by the next sweep."""
        key = PlaceholderKey.parse(job.admin_comment)
        pod = self.pods.get(key.uid) if key else None
        over = self.shared and key is not None and (pod is None or key.attempt < pod.attempt)
        return over or job.id in self.revived | self.late

    def nobody_gets_a_node_before_its_pod_is_gone(self) -> None:
        """Whoever is or may be on a Node without a job that runs there holds it (see extender.gate)."""
        running = {job_id for job_id, job in self.jobs.items() if job.state.running}
        for pod, node in self.nodes_in_use():
            jobs = [job for job in self.live_jobs(pod.uid) if job.id in running and job.nodes == (node,)]
            held = [each for each in self.ledger.holding(node) if each.pod.uid == pod.uid]
            told = any(
                each.state not in (State.ALLOCATED, State.BOUND) or each.job_id not in running
                for each in held
            )
            assert jobs or told, f"invariant I4: {pod.name} on {node} holds nothing: {held}"

    def unbound(self) -> Iterator[Pod]:
        return (pod for pod in self.pods.values() if pod.node is None)


def calm_down(world: World, rounds: int = 120) -> None:
    """Nothing is lost any more, everybody is quick, and Slurm takes everything."""
    world.max_jobs = None
    for number in range(rounds):
        if number % 30 == 0:
            world.sweep()
        world.settle()
        world.schedule()
        for uid in sorted(world.pods):
            world.bind(uid)
        world.ask()
        world.answer()
        world.pass_time(1.0)


def ends_well(world: World) -> None:
    for pod in world.pods.values():
        live = world.live_jobs(pod.uid)
        if pod.node is None and pod.request.problems:
            assert not live, f"{pod.name} has a job that is forbidden"
            continue
        if pod.request.problems and not live:  # a later leader has only what nobody may ask for
            continue
        assert len(live) == 1, f"{pod.name} is left without a placeholder: {pod}"
        known = [p.job_id for p in world.ledger.placeholders if p.pod.uid == pod.uid]
        assert known == [live[0].id], f"{pod.name} is not watched: {known}"
        if pod.node is not None and live[0].state.pending:  # lost, and its room is taken meanwhile
            assert live[0].required_nodes == (pod.node,), f"{pod.name} may be given another Node"
        elif pod.node is not None:
            assert live[0].nodes == (pod.node,), f"{pod.name} is bound elsewhere"
            assert live[0].state.running
        else:
            assert live[0].state.pending, f"{pod.name} is not bound though its job runs"
            owner = pod.request.job.user_id
            assert owner in (None, live[0].user_id), f"{pod.name} waits as another's"
    for uid in world.uids() - set(world.pods):
        assert not world.live_jobs(uid), f"the job of {uid} outlived its Pod"
