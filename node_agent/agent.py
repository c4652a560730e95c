"""The agent of one Node: it follows the Node's Pods, and keeps each to the devices of its job."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.watch import ResourceWatch
from node_agent.cgroups import PodCgroups
from node_agent.claims import Claim, claim_of
from node_agent.decision import Decision
from node_agent.keeper import Keeper
from node_agent.kernel.inotify import FolderWatch
from service.health import Health

log = structlog.get_logger()

_LOOK_S = 10.0
"""How often all is looked at, whatever was heard of."""
_DEAF_S = 1.0
"""The same where the kernel does not tell of new cgroups."""
_AWAITED_S = 0.2
"""The same while a Pod has no cgroup yet, whose folder may be new, too, or waits for a device."""
_LIST_S = 1.0
_WATCH = "watch of Pods"


class Agent:
    """Follows the Pods of a Node, and has the keeper look."""

    def __init__(self, kubernetes: Kubernetes, node: str, cgroups: PodCgroups, keeper: Keeper) -> None:
        self.health = Health()
        self._node = node
        self._cgroups = cgroups
        self._keeper = keeper
        says = partial(self.health.says, _WATCH)
        self._watch = ResourceWatch(kubernetes, "pods", f"spec.nodeName={node}", says)
        self._claims: dict[str, Claim] = {}
        self.problems: dict[str, str] = {}
        """Why a Pod, by its namespace and name, has less than its job."""
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Does so for ever. Until the Pods are listed all stays as the agent before has left it."""
        listed = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(listed))
            await listed.wait()
            tasks.create_task(self._keep())
            tasks.create_task(self.health.run())

    async def _follow(self, listed: asyncio.Event) -> None:
        while not listed.is_set():
            try:
                for manifest in await self._watch.list():
                    self._see(manifest)
                listed.set()
            except KubernetesError as error:
                self.health.says(_WATCH, error)
                await asyncio.sleep(_LIST_S)
        async for change in self._watch.changes():
            if change.gone:
                self._claims.pop(change.manifest["metadata"]["uid"], None)
            else:
                self._see(change.manifest)
            self._news.set()

    def _see(self, manifest: Manifest) -> None:
        claim = claim_of(manifest, self._node)
        self._claims[claim.uid] = claim

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
        finally:
            if folders is not None:
                folders.close()

    def _look(self) -> Decision | None:
        try:
            self._keeper.read_devices()
        except (OSError, ValueError) as error:
            self.health.says("slurmd's list of devices", error, alarm=True)
        else:
            machine = self._keeper.machine
            broken = "; ".join(f"{of}: {why}" for of, why in machine.problems.items()) if machine else ""
            self.health.says("slurmd's list of devices", broken or None, alarm=True)
        try:
            decision = self._keeper.keep(self._claims)
        except OSError as error:
            self.health.says("guard", error, alarm=True)
            return None
        self.health.says("guard", None)
        if decision is not None:
            self._tell(decision.problems)
            self.health.ready = True
        return decision

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
        """Has the kernel tell of Pods' cgroups that come. Without it the agent looks more often."""
        if folders is None:
            return False
        try:
            for folder in self._cgroups.folders():
                folders.add(folder)
        except OSError as error:
            self.health.says("inotify", error)
            return False
        self.health.says("inotify", None)
        return True


class PodsWithLess(Collector):
    """The metric that tells how many Pods have less than their jobs; the log says which and why."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterator[GaugeMetricFamily]:
        words = "Pods that have less than their Slurm jobs"
        yield GaugeMetricFamily(
            "node_agent_pods_with_less_than_their_jobs", words, len(self._agent.problems)
        )
