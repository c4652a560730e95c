"""The steps of the demo, in their order (`STORY`). Each step acts as a user would, and returns a
sentence about the result."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from deploy.local.cluster import Cluster
from deploy.local.demo.findings import (
    IDLE_P50_BUDGET_MS,
    Findings,
    Verdict,
    overcommitment,
    percentile,
    reason_difference,
)
from deploy.local.demo.pods import Pods, Sighting
from deploy.local.demo.screen import Screen
from deploy.local.demo.slurm import Slurm
from deploy.local.errors import ClusterError, NotObserved
from deploy.local.spec import ClusterSpec

NODES: Final = 4

_IDLE_PODS: Final = 24
# CPUs and GPUs of each kind of Pods. The demo creates one Pod of each kind for each node. These Pods
# request 1.5 times the CPUs and GPUs of the nodes.
_SIZES: Final = {"train": (4, 2), "serve": (2, 1), "tune": (4, 2), "web": (1, 0), "batch": (1, 1)}
_EVENT_LOOKS: Final = 20
_EVENT_LOOK_S: Final = 0.25
# The extender updates the reason on a Pod every 10 s.
_REASON_WITHIN_S: Final = 25.0
_NATIVE: Final = (3, 1)  # CPUs and GPUs that the native job takes on each node
_BESIDE_NATIVE: Final = (4, 2)
# This script waits for the file `finish` in alice's home directory. Then the script deletes the file,
# and ends.
_NATIVE_SCRIPT: Final = "#!/bin/sh\nuntil [ -e finish ]; do sleep 0.1; done\nrm finish\n"


def cluster_of(nodes: int) -> ClusterSpec:
    """Returns the spec of the demo's cluster. A node of this cluster is large enough for each Pod of the
    demo, and for the first Pod in README.md."""
    return ClusterSpec(nodes=nodes, cpus_per_node=8, memory_mb=16_000, gpus_per_node=4)


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that a step needs."""

    cluster: Cluster
    pods: Pods
    slurm: Slurm
    screen: Screen
    findings: Findings

    async def compare(self) -> None:
        """Compares each bound Pod with squeue, unless the Pod was compared before."""
        # Reads the Pods before squeue, because a Pod's job runs before the Pod is bound.
        bound = [pod for pod in self.pods.running if pod.name not in self.findings.compared]
        queue = await self.slurm.queue()
        for pod in bound:
            self.findings.compare(pod, queue)

    async def account(self, cpus: int = 0, gpus: int = 0) -> None:
        """Compares Slurm's allocations on each node with the use by Pods and native jobs."""
        running = self.pods.running  # read before the nodes, as in `compare`
        for node in await self.slurm.nodes():
            self.findings.note(overcommitment(node, running, cpus, gpus))

    async def end(self, pods: Sequence[Sighting]) -> None:
        """Compares and deletes Pods, and waits until the Pods and their jobs are gone."""
        await self.compare()
        for pod in pods:
            await self.pods.delete(pod)
        await self.pods.until(lambda: all(pod.gone for pod in pods), "deleted Pods gone")
        jobs = {pod.job_id for pod in pods}
        await self.slurm.until(lambda queue: not jobs & queue.keys(), "jobs of deleted Pods gone")


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its name in build/demo.json, the announcement, the expected event, and the function."""

    name: str
    sentence: str
    expected: str
    act: Callable[[Stage], Awaitable[str]]


async def place_on_idle_cluster(stage: Stage) -> str:
    """Creates Pods one at a time. The measured time begins just before the create call. It ends when the
    watch shows the binding."""
    times = stage.findings.idle_ms
    for number in range(1, _IDLE_PODS + 1):
        with stage.screen.still():
            pod = await stage.pods.create(f"idle-{number}", 1 + number % 4, number % 3)
            times.append(await _bound(stage, pod))
        await stage.end([pod])
    p50, p99 = (percentile(times, percent) or 0.0 for percent in (50, 99))
    kept = "kept" if p50 < IDLE_P50_BUDGET_MS else "EXCEEDED: is this machine busy?"
    budget = f"budget {IDLE_P50_BUDGET_MS} ms {kept}"
    return f"{len(times)} Pods, p50 {p50:.1f} ms ({budget}), p99 {p99:.1f} ms, max {max(times):.1f} ms"


async def _bound(stage: Stage, pod: Sighting) -> float:
    """Waits for the binding of a Pod, and returns the measured time in milliseconds."""
    return await stage.pods.until(lambda: pod.bound_ms, f"{pod.name} bound")


async def queue_more_than_fits(stage: Stage) -> str:
    nodes = range(1, stage.cluster.spec.nodes + 1)
    asked = [(f"{kind}-{node}", *size) for node in nodes for kind, size in _SIZES.items()]
    pods = await asyncio.gather(*(stage.pods.create(*each) for each in asked))
    waiting = await _reasons_agree(stage, pods)
    await stage.account()
    bound = [pod for pod in pods if pod.holds_node]
    if not waiting or not any(pod.gpus for pod in bound):
        raise NotObserved(f"{len(bound)} bound, {len(waiting)} waiting: expected some of both")
    reasons = ", ".join(sorted({str(pod.reason) for pod in waiting}))
    return f"{len(bound)} of {len(pods)} Pods bound, {len(waiting)} wait in Slurm ({reasons})"


async def _reasons_agree(stage: Stage, pods: Sequence[Sighting]) -> list[Sighting]:
    """Waits until each waiting Pod has the reason that squeue shows, and returns the waiting Pods. After
    the timeout, records each Pod with another reason as a difference."""

    def waiting() -> list[Sighting]:
        return [pod for pod in pods if pod.node is None]

    try:
        await stage.slurm.until(
            lambda queue: not any(reason_difference(pod, queue) for pod in waiting()),
            "the Pods' reasons equal squeue's",
            _REASON_WITHIN_S,
        )
    except NotObserved:
        queue = await stage.slurm.queue()
        for pod in waiting():
            stage.findings.note(reason_difference(pod, queue))
    return waiting()


async def start_queued_pod(stage: Stage) -> str:
    """Deletes all Pods of the Node with the fewest Pods. Then Slurm has room there for the first waiting
    Pods."""
    running = stage.pods.running
    nodes = [str(pod.node) for pod in running]
    freed = min(nodes, key=nodes.count, default="")
    queued = stage.pods.waiting
    leaving = [pod for pod in running if pod.node == freed]
    if not leaving or not queued:
        raise NotObserved("no Pod is bound, or no Pod waits")
    await stage.end(leaving)
    started = await stage.pods.until(
        lambda: [pod for pod in queued if pod.node == freed], f"a waiting Pod bound to {freed}"
    )
    return f"{', '.join(pod.name for pod in started)} started on {freed}"


async def cancel_job(stage: Stage) -> str:
    await stage.compare()
    pod = _some_running(stage)
    assert pod.job_id is not None
    await stage.slurm.cancel(pod.job_id)
    await stage.pods.until(lambda: pod.gone, f"{pod.name} deleted", 45.0)
    return f"{pod.name}: {await _event_message(stage, pod, 'SlurmJobCancelled')}"


async def _event_message(stage: Stage, pod: Sighting, reason: str) -> str:
    """Waits for an Event about a Pod. An Event appears approximately one second after its cause."""
    events = await stage.pods.events(pod)
    for _ in range(_EVENT_LOOKS):
        if reason in events:
            return events[reason]
        await asyncio.sleep(_EVENT_LOOK_S)
        events = await stage.pods.events(pod)
    raise NotObserved(f"{pod.name} has no Event {reason}, but {list(events)}")


async def delete_pods(stage: Stage) -> str:
    """Deletes a running Pod and, if there is one, a waiting Pod."""
    pods = [_some_running(stage), *stage.pods.waiting[:1]]
    jobs = [pod.job_id for pod in pods]
    await stage.end(pods)
    return f"jobs {', '.join(map(str, jobs))} of {', '.join(pod.name for pod in pods)} have ended"


def _some_running(stage: Stage) -> Sighting:
    if not stage.pods.running:
        raise NotObserved("no Pod runs")
    return stage.pods.running[0]


async def share_with_native_job(stage: Stage) -> str:
    """A native job takes a part of every node. The Pods get the remaining part, and never more."""
    await stage.end([pod for pod in stage.pods if not pod.gone])
    native = await _start_native(stage)
    count = stage.cluster.spec.nodes
    names = [f"beside-{number}" for number in range(1, count + 2)]
    pods = await asyncio.gather(*(stage.pods.create(name, *_BESIDE_NATIVE) for name in names))
    await stage.pods.until(
        lambda: len([pod for pod in pods if pod.node]) == count, f"{count} Pods bound"
    )
    (late,) = (pod for pod in pods if pod.node is None)
    await stage.slurm.until(
        lambda queue: (job := queue.get(late.job_id or 0)) and job.state == "PENDING",
        f"{late.name} waits",
    )
    await stage.account(*_NATIVE)
    await _finish_native(stage, native)
    await stage.pods.until(lambda: late.node, f"{late.name} bound after job {native}")
    await stage.account()
    return f"job {native} beside {count} Pods on {count} nodes; {late.name} waited for the job's end"


async def _start_native(stage: Stage) -> int:
    cpus, gpus = _NATIVE
    size = ("--nodes", str(stage.cluster.spec.nodes), "--ntasks-per-node=1", f"--cpus-per-task={cpus}")
    gres = (f"--gres=gpu:{gpus}", "--mem=1000")
    options = (*size, *gres, "--job-name=native", "--output=/dev/null")
    job = await stage.slurm.submit(_NATIVE_SCRIPT, *options, user="alice")
    await stage.slurm.until(lambda queue: queue[job].state == "RUNNING", f"native job {job} runs")
    stage.screen.tell(f"native job {job} of alice runs on every node")
    return job


async def _finish_native(stage: Stage, job: int) -> None:
    (stage.cluster.directory / "home/alice/finish").touch()
    await stage.slurm.until(lambda queue: job not in queue, f"native job {job} over")
    state = await stage.slurm.final_state(job)
    if state != "COMPLETED":
        raise NotObserved(f"native job {job} ended {state}")
    stage.screen.tell(f"native job {job} is completed")


STORY: Final = (
    Step(
        "idle_pods",
        f"{_IDLE_PODS} Pods, one at a time on an idle cluster: Slurm chooses, kube-scheduler binds.",
        "each Pod is bound to the Node that squeue names",
        place_on_idle_cluster,
    ),
    Step(
        "queued_pods",
        "Pods of different sizes at once, many with GPUs, more than fit: Slurm queues the others.",
        "some Pods wait, each with Slurm's reason; no node is overcommitted",
        queue_more_than_fits,
    ),
    Step(
        "freed_node",
        "The Pods of one Node are deleted: Slurm starts waiting Pods on the Node.",
        "a freed Node starts a queued Pod",
        start_queued_pod,
    ),
    Step(
        "cancelled_job",
        "scancel ends the job of a running Pod: the Pod is evicted, and an Event says why.",
        "a cancelled job evicts its Pod, with an Event",
        cancel_job,
    ),
    Step(
        "deleted_pod",
        "A running Pod and a waiting Pod are deleted: their jobs end.",
        "a deleted Pod ends its job",
        delete_pods,
    ),
    Step(
        "native_job",
        "alice's native Slurm job takes a part of every node, and Pods take the remaining part.",
        "a native job and Pods share nodes; none is overcommitted",
        share_with_native_job,
    ),
)


async def tell(stage: Stage) -> None:
    """Runs all steps of the demo. If a step fails, records the failure and continues with the next
    step."""
    for number, step in enumerate(STORY, 1):
        stage.screen.say(f"{number}. {step.sentence}")
        verdict = await _verdict(step, stage)
        stage.findings.verdicts.append(verdict)
        stage.screen.tell(f"{'observed' if verdict.observed else 'NOT OBSERVED'}: {verdict.seen}")


async def _verdict(step: Step, stage: Stage) -> Verdict:
    known = len(stage.findings.differences)
    try:
        seen = await _act(step, stage)
    except (NotObserved, ClusterError) as failure:
        seen = _ended(stage.cluster) or str(failure)
        return Verdict(step.name, step.expected, observed=False, seen=seen)
    if differences := stage.findings.differences[known:]:
        return Verdict(step.name, step.expected, observed=False, seen=_brief(differences))
    return Verdict(step.name, step.expected, observed=True, seen=seen)


async def _act(step: Step, stage: Stage) -> str:
    # Fails at once if a component has ended, because the step would otherwise only wait until its
    # timeout.
    if ended := _ended(stage.cluster):
        raise NotObserved(ended)
    seen = await step.act(stage)
    await stage.compare()
    return seen


def _brief(differences: Sequence[str]) -> str:
    more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
    return "; ".join(differences[:3]) + more


def _ended(cluster: Cluster) -> str | None:
    """Returns a message about the first component that has ended, or None if all components run."""
    for name, component in cluster.status().items():
        if component.returncode is not None:
            return f"{name} has ended ({component.returncode}): see {cluster.logs / name}.log"
    return None
