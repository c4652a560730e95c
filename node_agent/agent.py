"""The agent of one Node: it follows the Node's Pods, and keeps each to the devices of its job."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubernetes_client.protocol import Kubernetes
from node_agent.cgroups import PodCgroups
from node_agent.claims import Claim
from node_agent.containers import Containers
from node_agent.decision import Decision
from node_agent.device_health import DeviceHealth
from node_agent.gate import Answer, answer
from node_agent.keeper import Keeper
from node_agent.kernel.inotify import FolderWatch
from node_agent.nri import plugin
from node_agent.pods import NodePods
from service.health import Health

log = structlog.get_logger()

_LOOK_S = 10.0
"""How often all is looked at, whatever was heard of."""
_DEAF_S = 1.0
"""The same where the kernel does not tell of new cgroups."""
_AWAITED_S = 0.2
"""The same while a Pod has no cgroup yet, whose folder may be new, too, or waits for a device."""
_TOGETHER_S = 0.02
"""What comes within this time is looked at together."""
_COUNT_S = 5.0
_WATCH = "watch of Pods"
_DEVICES = "slurmd's list of devices"
_CPUS = "map of cores"
_RUNTIME = "container runtime"


class Programs(NamedTuple):
    """Those of the Node that the agent works for."""

    nri: Path | None = None
    """The container runtime's socket for plugins; None where it has none."""
    cdi: Sequence[Path] = ()
    """The folders of its specifications of devices."""
    device_plugins: Path | None = None
    """The kubelet's folder for plugins; None where others tell it of the devices."""
    resources: Mapping[str, str] = {}
    """The extended resources that are GRES, by name."""


class Agent:
    """Follows the Pods of a Node, and has the keeper look."""

    def __init__(
        self, kubernetes: Kubernetes, node: str, cgroups: PodCgroups, keeper: Keeper, programs: Programs
    ) -> None:
        self.health = Health()
        self._node = node
        self._cgroups = cgroups
        self._keeper = keeper
        self._programs = programs
        says = partial(self.health.says, _WATCH)
        self._news = asyncio.Event()
        self._pods = NodePods(kubernetes, node, self._news.set, says)
        counted = programs.resources if programs.device_plugins is not None else {}
        self._devices = DeviceHealth(kubernetes, node, keeper, programs.cdi, counted, self.health.says)
        self._awaits_runtime = programs.nri is not None
        self.problems: dict[str, str] = {}
        """Why a Pod, by its namespace and name, has less than its job."""

    @property
    def repaired(self) -> int:
        """Returns how many limits somebody else had changed."""
        return self._keeper.repaired

    async def run(self) -> None:
        """Does so for ever. Until the Pods are listed nobody is let in to more than the agent before has
        left it."""
        self._look_at_machine()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep())
            tasks.create_task(self._pods.follow())
            tasks.create_task(self.health.run())
            await self._devices.ask()  # before a container is made
            tasks.create_task(self._devices.run())
            if self._programs.nri is not None:
                containers = Containers(self._node, self._keeper, self._begins, self._pods.ends)
                staying = plugin.stay(self._programs.nri, containers, self._hears_runtime)
                tasks.create_task(staying)
            if self._programs.device_plugins is not None:
                for resource, gres in self._programs.resources.items():
                    tasks.create_task(self._count(self._programs.device_plugins, resource, gres))

    def clear(self) -> Answer:
        """Answers the Prolog's gate. Raises OSError."""
        cgroups = list(self._cgroups.pods())
        gone = self._pods.gone({cgroup.uid for cgroup in cgroups})
        claims = self._pods.claims
        return answer(claims or {}, gone, cgroups, heard=self._pods.heard and claims is not None)

    async def _keep(self) -> None:
        folders = self._folders()
        try:
            while True:
                self._news.clear()
                hears = self._hears(folders)  # first: nothing that comes later is missed
                decision = self._look()
                awaited = decision is not None and decision.awaited
                pause = _AWAITED_S if awaited else _LOOK_S if hears else _DEAF_S
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._news.wait()
                await asyncio.sleep(_TOGETHER_S)
        finally:
            if folders is not None:
                folders.close()

    def _look(self) -> Decision | None:
        self._look_at_machine()
        try:
            self._keeper.put_on()
            decision = self._keeper.keep(self._pods.claims)
        except OSError as error:
            self.health.says("guard", error, alarm=True)
            return None
        self.health.says("guard", None)
        if decision is not None:
            self._tell(decision.problems)
            self.health.ready = not self._awaits_runtime
        return decision

    def _look_at_machine(self) -> None:
        try:
            self._keeper.read_cpus()
        except (OSError, ValueError) as error:
            self.health.says(_CPUS, error, alarm=True)
        else:
            self.health.says(_CPUS, None)
        try:
            self._keeper.read_devices()
        except (OSError, ValueError) as error:
            self.health.says(_DEVICES, error, alarm=True)
        else:
            machine = self._keeper.machine
            broken = "; ".join(f"{of}: {why}" for of, why in machine.problems.items()) if machine else ""
            self.health.says(_DEVICES, broken or None, alarm=True)

    def _begins(self, claim: Claim) -> str:
        """Has a Pod let in before its containers are made. Returns why it is not. Pods of no job are
        never in the way: kube-apiserver may come to be reached by one of them."""
        self._pods.begins(claim)
        if claim.problem or not claim.of_job:
            return claim.problem
        decision = self._look()
        if decision is None:
            told = "; ".join(f"{part}: {words}" for part, words in self.health.troubles().items())
            return f"the node agent does not know yet who has what ({told})"
        waits = "its cgroup is not there" if claim.uid in decision.awaited else ""
        return decision.problems.get(claim.pod, waits)

    async def _count(self, folder: Path, resource: str, gres: str) -> None:
        """Tells the kubelet how many there are of a resource, once there are any."""
        units = partial(self._keeper.units, resource, gres)
        while not units():  # noqa: ASYNC110 -- slurmd's list, or its first device, may come later
            await asyncio.sleep(_COUNT_S)
        from node_agent.kubelet import device_plugin  # noqa: PLC0415 -- gRPC takes 10 MB of memory

        says = partial(self.health.says, f"the kubelet's plugin for {resource}")
        await device_plugin.stay(folder, resource, units, says)

    def _hears_runtime(self, trouble: Exception | str | None) -> None:
        self.health.says(_RUNTIME, trouble)
        if trouble is None:
            self._awaits_runtime = False
            self._news.set()

    def _tell(self, problems: Mapping[str, str]) -> None:
        for pod, why in problems.items():
            if self.problems.get(pod) != why:
                log.warning("a Pod has less than its job", pod=pod, why=why)
        for pod in self.problems.keys() - problems.keys():
            log.info("a Pod has less than its job no more, or is gone", pod=pod)
        self.problems = dict(problems)

    def _folders(self) -> FolderWatch | None:
        try:
            return FolderWatch(self._news.set)
        except OSError as error:
            self.health.says("inotify", error)
            return None

    def _hears(self, folders: FolderWatch | None) -> bool:
        """Has the kernel tell of Pods' cgroups that come, and of limits that somebody writes. Without it
        the agent looks more often."""
        if folders is None:
            return False
        try:
            for folder in self._cgroups.folders():
                folders.add(folder)
            for cgroup in self._cgroups.pods():
                with suppress(FileNotFoundError):  # it goes just now
                    folders.add(cgroup.place)
        except OSError as error:
            self.health.says("inotify", error)
            return False
        self.health.says("inotify", None)
        return True


class Figures(Collector):
    """The metrics of the agent's work; the log says which Pods they are about."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterator[Metric]:
        words = "Pods that have less than their Slurm jobs"
        yield GaugeMetricFamily(
            "node_agent_pods_with_less_than_their_jobs", words, len(self._agent.problems)
        )
        words = "limits of Pods that somebody else had changed, and that were put right"
        yield CounterMetricFamily("node_agent_limits_repaired", words, self._agent.repaired)
