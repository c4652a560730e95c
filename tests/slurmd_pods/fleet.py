"""Runs the Nodes of a pool without kubelets. Each Node has two parts: the node agent's code for the
slurmd Pod, with the token of an agent's Pod, and a stand-in for the kubelet. The stand-in starts a real
slurmd with the Pod's options.

Before slurmd ends, the stand-in waits for jobs, as a slurmd Pod does (node_agent/slurmd/stop.sh).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from deploy.local.chart import POOLS_NAMESPACE
from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from kubernetes_client.errors import Conflict, KubernetesError, NotFound
from kubernetes_client.protocol import Manifest
from kubernetes_client.rest import KubernetesRest
from node_agent.pods.node_pods import NodePods
from node_agent.slurmd.runner import Here, SlurmdRunner
from slurm_client import hostlist
from slurm_client.errors import SlurmError
from slurm_client.rest.client import SlurmRest
from tests.end_to_end.actors import SIGN
from tests.end_to_end.agent_account import token_of_a_pod, write_kubeconfig
from wellknown.conditions import timestamp
from wellknown.names import DEVICE_PROBLEM, NODE_NAME_LABEL

CRASHES = "registry.example.com/slurmd:broken"
"""Image of a slurmd that ends at once."""
_LOOK_S = 0.1
_JOBS_LOOK_S = 0.3
"""Pause in seconds between two reads of the native jobs. A read may start squeue."""
_THREADS = 32
_TAKES_NO_JOBS = frozenset({"DRAIN", "POWERING_DOWN", "POWERED_DOWN"})


@dataclass
class Seen:
    """What the stand-ins for the kubelets have done."""

    made: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    """By Node: the image of each slurmd Pod that ran there, and the time when slurmd started."""
    pulled: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of a Node and an image that was pulled before the old slurmd ended."""
    ended_busy: int = 0
    """Number of slurmds that ended while a native job was on the node."""


class Fleet:
    """Runs the agents and stand-ins of all Nodes in a separate thread, with an event loop."""

    def __init__(self, cluster: Cluster, nodes: list[str]) -> None:
        self.cluster = cluster
        self.nodes = nodes
        self.seen = Seen({node: [] for node in nodes})
        self.problems: dict[tuple[str, str], object] = {}
        self.gres = ""
        """Devices found by the agents."""
        self._native: dict[str, list[str]] = {}
        self._threads = ThreadPoolExecutor(_THREADS)
        self.slurmrestd = SlurmRest(cluster.slurmrestd_url, cluster.token_file)

    @contextmanager
    def running(self, folder: Path) -> Iterator[Fleet]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        with ExitStack() as stack:
            self._give_tokens(folder, stack)
            thread.start()
            stop = asyncio.Event()
            whole = asyncio.run_coroutine_threadsafe(self._run(folder, stop), loop)
            try:
                yield self
            finally:
                loop.call_soon_threadsafe(stop.set)
                whole.result(20)
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                self._threads.shutdown()
                loop.close()

    def _give_tokens(self, folder: Path, stack: ExitStack) -> None:
        for node in self.nodes:
            token = stack.enter_context(token_of_a_pod(self.cluster, node))
            write_kubeconfig(folder / node, self.cluster, token)

    async def _run(self, folder: Path, stop: asyncio.Event) -> None:
        administrator = await KubernetesRest.connect(self.cluster.kubeconfig)
        await self.slurmrestd.connect()
        all_parts = (self._watch_native_jobs(), *self._parts(folder, administrator))
        parts = [asyncio.ensure_future(each) for each in all_parts]
        await asyncio.wait(
            [*parts, asyncio.ensure_future(stop.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        for part in parts:
            part.cancel()
        ended = await asyncio.gather(*parts, return_exceptions=True)
        await administrator.aclose()
        await self.slurmrestd.aclose()
        for end in ended:
            if isinstance(end, Exception):
                raise end

    def _parts(self, folder: Path, administrator: KubernetesRest) -> Iterable[Coroutine[Any, Any, None]]:
        """Returns the parts of the fleet that run at the same time, such as agents and stand-ins."""
        return [self._node(node, folder / node, administrator) for node in self.nodes]

    async def _node(self, node: str, kubeconfig: Path, administrator: KubernetesRest) -> None:
        api = await KubernetesRest.connect(kubeconfig)
        runner: SlurmdRunner

        def hears() -> None:
            runner.wake()

        pods = NodePods(api, node, hears, lambda _: None, POOLS_NAMESPACE)
        here = Here(
            pod=lambda: pods.slurmd,
            pull=lambda: pods.pull,
            jobs=lambda _: self._native.get(node, []),
            orphans=lambda: None if pods.claims is None else [],
            machine=lambda: (self.gres, 1),
            awaited=str,
        )

        def says(part: str, problem: object) -> None:
            self.problems[node, part] = problem

        runner = SlurmdRunner(api, node, POOLS_NAMESPACE, NODE_NAME_LABEL, here, says)
        agent = {"type": DEVICE_PROBLEM, "status": "False", "reason": "DevicesUsable", "message": ""}
        await administrator.patch_node_status(node, {"status": {"conditions": [agent]}})
        kubelet = Kubelet(self, node, pods, administrator)
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in (pods.follow(), runner.run(), kubelet.run()):
                    tasks.create_task(part)
        finally:
            await api.aclose()

    async def _watch_native_jobs(self) -> None:
        """Watches native jobs with squeue. A real agent finds native jobs by cgroups."""
        while True:
            with suppress(SlurmError):  # fails while slurmctld restarts
                self._native = await self.native_jobs()
            await asyncio.sleep(_JOBS_LOOK_S)

    async def slurm(self, *argv: str) -> str:
        """Returns the output of a Slurm command."""
        loop = asyncio.get_running_loop()
        ran = await loop.run_in_executor(self._threads, lambda: self.cluster.run_slurm(*argv))
        return ran.stdout

    async def act(self, what: Callable[[], object]) -> None:
        """Runs a function of the cluster's supervisor in another thread. Ignores a ClusterError of the
        function."""

        def whole() -> None:
            with suppress(ClusterError):
                what()

        await asyncio.get_running_loop().run_in_executor(self._threads, whole)

    async def native_jobs(self) -> dict[str, list[str]]:
        """Returns the current native jobs by node. First asks slurmrestd whether any job exists, because
        slurmrestd costs less CPU than squeue."""
        states = (await self.slurmrestd.all_states()).values()
        if not any(state.completing or not (state.ended or state.pending) for state in states):
            return {}
        lines = (await self.slurm("squeue", "-h", "-t", "R,CG", "-o", "%j|%i|%N")).splitlines()
        found: dict[str, list[str]] = {}
        for name, job, nodes in (line.split("|") for line in lines):
            for node in hostlist.expand(nodes) if SIGN not in name else ():
                found.setdefault(node, []).append(f"job_{job}")
        return found

    def starts(self, images: Collection[str]) -> list[tuple[str, float]]:
        """Returns the node and the time of each start of a slurmd from the given images."""
        made = self.seen.made.items()
        return [(node, when) for node, each in made for image, when in each if image in images]

    def forget(self) -> None:
        """Forgets which slurmds have started."""
        for made in self.seen.made.values():
            made.clear()


def options_of(args: Sequence[str]) -> tuple[str, ...]:
    """Returns the options of a slurmd Pod in the form that `Cluster.register` takes."""
    conf, kind = (args[args.index(option) + 1] for option in ("--conf", "--instance-type"))
    return conf, "--instance-type", kind


class HasPod(Protocol):
    """Finds the slurmd Pod of a Node, and the Pod that pulls images on the Node."""

    slurmd: Manifest | None
    pull: Manifest | None


class Kubelet:
    """Stand-in for the kubelet of one Node: runs the slurmd Pod."""

    def __init__(self, fleet: Fleet, node: str, pods: HasPod, administrator: KubernetesRest) -> None:
        self._fleet = fleet
        self._node = node
        self._pods = pods
        self._api = administrator
        self._runs = ""
        """The uid of the started Pod."""
        self._pulled = ""
        """The uid of the latest Pod for pulling images."""
        self._slurmd = f"slurmd-{node}"
        self._started = False

    async def run(self) -> None:
        while True:
            with suppress(KubernetesError, SlurmError):
                await self.look()
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        pod = self._pods.slurmd
        await self._pull(self._pods.pull)
        if pod is None:
            await self._stop()
        elif "deletionTimestamp" in pod["metadata"]:
            await self._end(pod["metadata"])
        elif pod["metadata"]["uid"] != self._runs:
            await self._stop()
            self._runs = pod["metadata"]["uid"]
            await self._start(pod)

    async def _pull(self, pod: Any) -> None:
        if pod is None or pod["metadata"]["uid"] == self._pulled:
            return
        self._pulled = pod["metadata"]["uid"]
        self._fleet.seen.pulled.append((self._node, pod["spec"]["containers"][0]["image"]))
        ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        await self._say(pod, ended, ready=False, image_id="sha256:1")

    async def _start(self, pod: Any) -> None:
        (container,) = pod["spec"]["containers"]
        self._fleet.seen.made[self._node].append((container["image"], time.monotonic()))
        if container["image"] == CRASHES:
            waiting = {"reason": "CrashLoopBackOff", "message": "back-off"}
            await self._say(pod, {"waiting": waiting}, ready=False)
            return
        options = options_of(container["args"])
        boots = ["-b"] if container.get("env") else []
        started = datetime.now(UTC)
        cluster = self._fleet.cluster
        self._started = True
        await self._fleet.act(lambda: cluster.register(self._node, *options, *boots))
        await self._say(pod, {"running": {"startedAt": timestamp(started)}}, ready=True)

    async def _say(self, pod: Any, state: Any, *, ready: bool, image_id: str = "") -> None:
        container = pod["spec"]["containers"][0]
        status = {
            "name": container["name"],
            "image": container["image"],
            "imageID": image_id,
            "ready": ready,
            "restartCount": 0,
            "state": state,
        }
        conditions = [{"type": "Ready", "status": str(ready)}]
        told = {"phase": "Running", "conditions": conditions, "containerStatuses": [status]}
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": told}
        with suppress(Conflict, NotFound):
            await self._api.patch_pod_status(metadata["namespace"], metadata["name"], patch)

    async def _end(self, metadata: Any) -> None:
        """Drains the node and waits for jobs, as node_agent/slurmd/stop.sh does. Then stops slurmd and
        deletes the Pod."""
        node = await self._fleet.slurmrestd.node(self._node)
        if node is not None and node.states.isdisjoint(_TAKES_NO_JOBS):
            reason = "slurm-extender pool dyn: its slurmd Pod is being deleted"
            await self._fleet.slurmrestd.drain_node(self._node, reason)
        if self._node in await self._fleet.native_jobs():
            await asyncio.sleep(_JOBS_LOOK_S)
            return
        await self._stop()
        with suppress(Conflict):
            await self._api.delete_pod(
                metadata["namespace"], metadata["name"], {"uid": metadata["uid"]}, 0
            )

    async def _stop(self) -> None:
        self._runs = ""
        if self._started:
            self._fleet.seen.ended_busy += bool(self._node in await self._fleet.native_jobs())
            await self._fleet.act(lambda: self._fleet.cluster.stop(self._slurmd))
            self._started = False
