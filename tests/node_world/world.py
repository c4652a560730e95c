"""A model of two nodes in both systems: two replicas of the extender, kubelets, slurmds and node agents.

The extender, the gate and the binder are the real code. Both systems are the product's models in memory.
All other parts are simple models, and only decide which processes run on a node: kube-scheduler binds
Pods with an allocation and enough CPUs, kubelets start and end containers, slurmds start native jobs
after the Prolog, and node agents limit containers to their slots. The actors in `actors` disturb all
parts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from extender.bind.binder import Target
from extender.bind.job_as_read import NotBound
from extender.jobs.claim import key_of
from extender.jobs.overlap import Unit, common
from extender.jobs.slots import whole_on
from extender.node_sync.prolog_gate import NotLeading, NotOurs
from kubernetes_client.errors import KubernetesError
from kubernetes_client.in_memory import InMemoryKubernetes
from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import claim_of
from node_agent.pods.gate import lingering
from slurm_client.errors import SlurmError
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.model import Job, JobSpec
from tests.builders import node_manifest, pod_manifest
from tests.node_world.replica import RunningReplica, settings_of
from wellknown.allocation import Allocation
from wellknown.job_key import JobIdRange
from wellknown.names import DEFAULT_PREFIX, DEVICE_PROBLEM

NODES = ("n1", "n2")
CPUS, GPUS = 8, 4
REPLICAS = ("replica-1", "replica-2")
GATE_S = 45.0  # SLURM_EXTENDER_GATE_S
_LOOK_S = 0.05
_AGENT_S = 0.3  # the longest time from a new slot on a Pod to the kernel's limits
_UNSEEN_S = 0.5  # the longest time for kubelets and slurmds to see a change


@dataclass
class Container:
    """A Pod's processes on a node. The node agent limits the processes to the slot."""

    name: str
    node: str
    slot: Allocation
    grace_s: float
    """Seconds of the grace period that the container uses."""
    stops_at: float | None = None


@dataclass
class Process:
    """A native job's first process on a node."""

    job_id: int
    node: str
    slot: Allocation
    ends_at: float


@dataclass(frozen=True)
class Overlap:
    at: float
    node: str
    who: frozenset[str]
    units: frozenset[Unit]

    @property
    def between(self) -> tuple[str, frozenset[str]]:
        return self.node, self.who


@dataclass
class NodeWorld:
    """Both systems, and the processes on the nodes. Times are the loop's."""

    random: Random
    external_jobs: bool = True
    """False if waiting placeholders are batch jobs, as on 24.11."""
    agents_answer: bool = True
    """False if the gate cannot ask node agents, and asks only the extender."""
    agents_away: bool = False
    """True if no node agent runs. The slots in force stay, and the container runtimes start no container
    without the agent."""
    containers: dict[str, Container] = field(default_factory=dict)
    """Containers by the uid of the Pod."""
    processes: dict[tuple[int, str], Process] = field(default_factory=dict)
    prologs: dict[tuple[int, str], asyncio.Task[None]] = field(default_factory=dict)
    natives: dict[int, float] = field(default_factory=dict)
    """Duration of each native job's processes in seconds, by job id."""
    cut_off: set[str] = field(default_factory=set)
    """Nodes whose kubelets do not reach kube-apiserver."""
    ended: set[int] = field(default_factory=set)
    """Native jobs whose processes have ended."""
    overlaps: list[Overlap] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Problems at the end of the run."""
    ran: Counter[str] = field(default_factory=Counter)
    """Number of all containers, and of all native jobs' processes, since the start."""
    made: int = 0

    def __post_init__(self) -> None:
        clock = asyncio.get_running_loop().time
        self.slurm = InMemorySlurm(
            [node(name, cpus=CPUS, memory_mb=64_000, gres=f"gpu:h100:{GPUS}") for name in NODES],
            [partition("main", NODES, default=True)],
            clock=clock,
            external_jobs=self.external_jobs,
        )
        self.kubernetes = InMemoryKubernetes(clock=clock)
        agents = {"conditions": [{"type": DEVICE_PROBLEM, "status": "False"}]}
        self.kubernetes.put("nodes", *(node_manifest(name) | {"status": agents} for name in NODES))
        self.replicas: dict[str, RunningReplica] = {}

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def ids(self) -> JobIdRange:
        return settings_of(REPLICAS[0]).placeholder_ids

    # Time

    async def run(self, seconds: float, *actors: Any) -> None:
        """Runs the world for some seconds, together with other actors."""
        for name in REPLICAS:
            self.start(name)
        watching = (self._kube_scheduler, self._kubelets, self._slurmds, self._agents, self._watch)
        tasks = [asyncio.ensure_future(_again(act)) for act in watching]
        tasks += [asyncio.ensure_future(actor()) for actor in actors]
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        self.left = self.left_behind()
        for replica in self.replicas.values():
            await replica.stop()
        for task in (*tasks, *self.prologs.values()):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    # Replicas of the extender

    def start(self, name: str) -> None:
        self.replicas[name] = RunningReplica(name, self.kubernetes, self.slurm)

    @property
    def is_led(self) -> bool:
        """Returns True if a replica leads, and has recovered."""
        return any(replica.leads for replica in self.replicas.values())

    async def end(self, name: str, *, kill: bool) -> None:
        """Ends a replica. The replica gives no more answers."""
        replica = self.replicas.pop(name)
        await (replica.kill() if kill else replica.stop())

    # Users

    def create_pod(self, cpus: int, gpus: int, grace_s: float, user: int | None) -> str:
        self.made += 1
        annotations = {} if user is None else {f"{DEFAULT_PREFIX}user-id": str(user)}
        name = f"p{self.made}"
        asks: dict[str, Any] = {"cpu": str(cpus), "gpus": gpus, "annotations": annotations}
        pod = pod_manifest(name, **asks, terminationGracePeriodSeconds=int(grace_s) + 1)
        self.kubernetes.put("pods", pod)
        return name

    async def create_native_job(
        self, cpus: int, gpus: int, seconds: float, name: str = "native", user: int | None = None
    ) -> int:
        self.made += 1
        job_id = 1000 + self.made
        self.natives[job_id] = seconds
        gres = (("gpu", gpus),) if gpus else ()
        await self.slurm.submit(JobSpec(name, cpus, 100, user_id=user, gres=gres), job_id)
        return job_id

    def jobs(self) -> list[Job]:
        """Returns the jobs that have not ended."""
        return self.slurm.live_jobs()

    def waiting(self) -> list[Job]:
        """Returns the placeholders in Slurm's queue."""
        return [job for job in self.jobs() if job.id in self.ids and job.state.pending]

    def placeholders(self) -> list[Job]:
        """Returns the placeholders that run or are suspended."""
        return [job for job in self.jobs() if job.id in self.ids and not job.state.pending]

    def natives_running(self) -> list[Job]:
        """Returns the native jobs that run or are suspended."""
        return [job for job in self.jobs() if job.id in self.natives and not job.state.pending]

    # kube-scheduler

    async def _kube_scheduler(self) -> None:
        await asyncio.sleep(self.random.choice((0.0, self.random.uniform(0.02, 0.5))))
        for pod in self.kubernetes.objects("pods"):
            own, spec = Allocation.parse(pod["metadata"].get("annotations") or {}), pod["spec"]
            waits = not (spec.get("nodeName") or spec.get("schedulingGates") or self._is_deleted(pod))
            if own is None or not waits or not self.replicas:
                continue
            if _cpus(pod) <= CPUS - sum(_cpus(each) for each in self._on(own.node)):
                metadata = pod["metadata"]
                target = Target(metadata["namespace"], metadata["name"], metadata["uid"], own.node)
                with suppress(NotBound):
                    answers = self.random.choice(list(self.replicas.values()))
                    await answers.binder.bind(target)

    def _on(self, name: str) -> Iterator[dict[str, Any]]:
        return (pod for pod in self.kubernetes.objects("pods") if pod["spec"].get("nodeName") == name)

    @staticmethod
    def _is_deleted(pod: dict[str, Any]) -> bool:
        return "deletionTimestamp" in pod["metadata"]

    # Kubelets

    async def _kubelets(self) -> None:
        await asyncio.sleep(self.random.uniform(0.0, _UNSEEN_S))
        connected = [name for name in NODES if name not in self.cut_off]
        there = {pod["metadata"]["uid"]: pod for name in connected for pod in self._on(name)}
        for uid, pod in there.items():
            annotations = pod["metadata"].get("annotations") or {}
            slot = Allocation.parse(annotations)
            begins = uid not in self.containers and not self._is_deleted(pod)
            if begins and slot is not None and not self.agents_away:
                grace_s = pod["spec"]["terminationGracePeriodSeconds"] - 1
                name = pod["metadata"]["name"]
                self.containers[uid] = Container(name, pod["spec"]["nodeName"], slot, grace_s)
                self.ran["containers"] += 1
            elif self._is_deleted(pod):
                self._stop(uid, pod)
        here = [each for each in self.containers.items() if each[1].node in connected]
        for uid, container in here:
            if uid not in there and container.stops_at is None:  # the Pod was deleted by force
                container.stops_at = self.now + container.grace_s
            if container.stops_at is not None and self.now >= container.stops_at:
                del self.containers[uid]
                if uid in there:
                    self.kubernetes.remove("pods", container.name)

    def _stop(self, uid: str, pod: dict[str, Any]) -> None:
        container = self.containers.get(uid)
        if container is None:  # the Pod never had a container
            self.kubernetes.remove("pods", pod["metadata"]["name"])
            return
        grace_s = min(container.grace_s, pod["metadata"]["deletionGracePeriodSeconds"])
        stops_at = self.now + grace_s
        container.stops_at = min(stops_at, container.stops_at or stops_at)

    def cut_off_kubelet(self, name: str, *, lasts: bool) -> None:
        """Begins or ends an outage between a kubelet and kube-apiserver. Kubernetes taints the Node."""
        taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
        if lasts:
            self.cut_off.add(name)
        self.kubernetes.edit("nodes", name, {"spec": {"taints": [taint] if lasts else None}}, "")
        if not lasts:
            self.cut_off.discard(name)

    def containers_without_pods(self) -> list[str]:
        """Returns the names of Pods with running containers after a deletion by force."""
        there = {pod["metadata"]["uid"] for pod in self.kubernetes.objects("pods")}
        return [each.name for uid, each in self.containers.items() if uid not in there]

    # Node agents

    async def _agents(self) -> None:
        """Limits containers to the slots on their Pods."""
        await asyncio.sleep(self.random.uniform(0.0, _AGENT_S))
        for name in () if self.agents_away else NODES:
            for pod in self._on(name):
                container = self.containers.get(pod["metadata"]["uid"])
                slot = Allocation.parse(pod["metadata"].get("annotations") or {})
                if container is not None and slot is not None:
                    container.slot = slot

    def lingering_on(self, name: str) -> tuple[str, ...]:
        """Returns the node agent's answer to the gate."""
        here = {uid: each.name for uid, each in self.containers.items() if each.node == name}
        claims = {pod["metadata"]["uid"]: claim_of(pod, name) for pod in self._on(name)}
        removed = {uid: who for uid, who in here.items() if uid not in claims}
        cgroups = [PodCgroup(uid, number, populated=True) for number, uid in enumerate(here)]
        return lingering(claims, removed, cgroups)

    # slurmds

    async def _slurmds(self) -> None:
        await asyncio.sleep(self.random.uniform(0.0, _UNSEEN_S))
        there = {(job.id, name) for job in self.natives_running() for name in job.nodes}
        for at in there - self.prologs.keys() - self.processes.keys():
            if at[0] in self.ended:
                continue
            self.prologs[at] = asyncio.ensure_future(self._prolog(*at))
        for at, process in tuple(self.processes.items()):
            if at not in there:  # slurmd ends processes unknown to slurmctld
                del self.processes[at]
            elif self.now >= process.ends_at:
                del self.processes[at]
                self.ended.add(process.job_id)
        for job_id in {job_id for job_id, _ in there} & self.ended:  # a killed slurmctld forgets the end
            self.slurm.end(job_id)

    async def _prolog(self, job_id: int, name: str) -> None:
        """Runs slurm-extender-gate, and then the first process of the job."""
        begun = self.now
        while not await self._is_clear(job_id, name):
            if self.now > begun + GATE_S:
                with suppress(ValueError):  # the job has ended
                    self.slurm.end(job_id, "FAILED")
                break
            await asyncio.sleep(0.2)
        else:
            self._start(job_id, name)
        del self.prologs[job_id, name]

    def _start(self, job_id: int, name: str) -> None:
        for job in self.natives_running():  # the job may have ended, or be forgotten
            if job.id == job_id and name in job.nodes:
                slot = whole_on(name, job.grant, job.id, name)
                assert slot is not None
                ends_at = self.now + self.natives[job_id]
                self.processes[job_id, name] = Process(job_id, name, slot, ends_at)
                self.ran["processes"] += 1

    async def _is_clear(self, job_id: int, name: str) -> bool:
        if self.agents_answer and not self.agents_away and self.lingering_on(name):
            return False
        for replica in tuple(self.replicas.values()):
            with suppress(NotLeading, NotOurs, SlurmError, KubernetesError):
                gate, away = replica.leader.gate, self.agents_answer and self.agents_away
                return not await gate.wait(name, 5.0, job_id, agent_away=away)
        return False

    # Invariants

    async def _watch(self) -> None:
        """Notes each overlap of a Pod's cores or devices with a Pod or a native job. Slurm itself keeps
        native jobs apart."""
        await asyncio.sleep(_LOOK_S)
        computes = {job.id for job in self.natives_running() if job.state.running}
        for name in NODES:
            pods = [(each.name, each.slot) for each in self.containers.values() if each.node == name]
            processes = [each for each in self.processes.values() if each.node == name]
            natives = [(f"job {one.job_id}", one.slot) for one in processes if one.job_id in computes]
            for number, (pod, slot) in enumerate(pods):
                for other, others in (*pods[number + 1 :], *natives):
                    if units := common(slot, others):
                        self.overlaps.append(Overlap(self.now, name, frozenset((pod, other)), units))

    def _fits(self, slot: Allocation, has: Allocation | None) -> bool:
        """Returns True if a slot is equal to the job's slot, or if other Pods use cores or devices of
        the job's slot."""
        slots = [each.slot for each in self.containers.values() if each.slot.job_id != slot.job_id]
        there = [each for each in slots if each.node == slot.node]
        return has is not None and (has == slot or any(common(has, each) for each in there))

    def lasting_overlaps(self) -> list[Overlap]:
        """Returns the overlaps that lasted longer than a node agent needs to follow a new slot."""
        first = {each.between: each.at for each in reversed(self.overlaps)}
        most = _AGENT_S + 2 * _LOOK_S
        return [each for each in self.overlaps if each.at - first[each.between] > most]

    def left_behind(self) -> list[str]:
        """Returns the remaining problems after a time of rest."""
        pods = {pod["metadata"]["uid"]: pod for pod in self.kubernetes.objects("pods")}
        jobs = {job.id: job for job in self.jobs() if job.id in self.ids}
        wrong = [f"a container of {name}" for name in self.containers_without_pods()]
        for pod in pods.values():
            slot = Allocation.parse(pod["metadata"].get("annotations") or {})
            job = jobs.pop(slot.job_id, None) if slot is not None else None
            if slot is not None and pod["spec"].get("nodeName"):
                has = None if job is None else whole_on(slot.node, job.grant, job.id, slot.node)
                if not self._fits(slot, has) or (job is not None and job.suspend_time is not None):
                    wrong.append(f"{pod['metadata']['name']} has {slot}, and its job {job}")
        keys = {key.uid for job in jobs.values() if (key := key_of(job)) is not None}
        return wrong + [f"a job of {uid}" for uid in keys - pods.keys()]


async def _again(act: Any) -> None:
    while True:
        await act()


def _cpus(pod: dict[str, Any]) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
