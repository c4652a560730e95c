"""The parts of a replica, and the work that every replica does. The leader also does this work."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from extender.execution import startup
from extender.execution.failures import failure_of
from extender.execution.feasible_nodes_writer import FeasibleNodesWriter
from extender.execution.job_id_check import JobIdCheck
from extender.execution.pod_watch import PodWatch
from extender.execution.release_check import ReleaseCheck
from extender.execution.rights_check import RightsCheck
from extender.kube_scheduler.preemption_check import PreemptionCheck
from extender.leader.lease import Lease
from extender.node_sync.cpu_check import CpuCheck
from extender.node_view.slurm_nodes import SlurmNodes
from extender.node_view.view import ClusterView
from extender.node_view.view_updater import ClusterViewUpdater
from extender.pod_request.translation import TranslationConfig
from extender.policy.current import CurrentPolicy
from extender.pools.current import CurrentPools
from extender.preflight.rights import to_pods_in_scope
from extender.settings import Settings
from extender.telemetry import Telemetry
from extender.telemetry.replica_states import ReplicaStates
from extender.unmanaged.free_capacity import FreeCapacity
from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes
from service.health import Health
from slurm_client.errors import SlurmError
from slurm_client.protocol import Slurm
from slurm_client.tokens import TokenFile

_RETRY_S = 2.0
_START = "start"
Result = TypeVar("Result")


class Replica:
    """A replica of the extender, with clients and read models of Slurm and Kubernetes."""

    def __init__(
        self,
        settings: Settings,
        kubernetes: Kubernetes,
        slurm: Slurm,
        policy: CurrentPolicy,
        telemetry: Telemetry | None = None,
        pools: CurrentPools | None = None,
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.pools = pools or CurrentPools(None)
        self.kubernetes = kubernetes
        self.slurm = slurm
        self.health = Health()
        self.telemetry = telemetry or Telemetry()
        self.telemetry.follow(self.health)
        self._translation_now = settings.translation
        self.cluster = ClusterViewUpdater(
            *(kubernetes, slurm, self.health, settings.node_name_label),
            *(settings.slurm_defaults, settings.topology_tiers),
        )
        self.slurm_nodes = SlurmNodes(slurm)
        self.lease = Lease(
            kubernetes, settings.namespace, settings.replica, settings.lease_duration_s, self.health
        )
        self.feasible_nodes = FeasibleNodesWriter(kubernetes, self.health)
        self._cpus = CpuCheck(self.slurm_nodes, self.health, self.view, settings.cpu_unit)
        self.job_ids = JobIdCheck(slurm, self.health, settings.placeholder_ids, settings.max_job_id)
        self.states = ReplicaStates(
            self.job_ids, TokenFile(settings.slurm_token_file).lifetime, lambda: self.lease.transitions
        )
        self.telemetry.registry.register(self.states)
        self._releases = ReleaseCheck(kubernetes, self.health, settings.namespace)
        self._rights = RightsCheck(kubernetes, self.health, to_pods_in_scope(settings))
        self._preemption = PreemptionCheck(
            *(kubernetes, self.health, settings.translation, settings.scheduler_config_file),
            self.telemetry.preempted_unasked,
        )
        self.capacity = FreeCapacity(
            kubernetes,
            slurm,
            self.slurm_nodes,
            settings.translation,
            self.health,
            self.view,
            enabled=settings.unmanaged_pods != "ignore",
        )

    async def run(self) -> None:
        """Follows Slurm and Kubernetes forever. Every replica needs the nodes of both systems, to verify
        bindings."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.health.run())
            tasks.create_task(self.capacity.run())
            tasks.create_task(self.feasible_nodes.run())
            tasks.create_task(self._preemption.run())
            tasks.create_task(self._releases.run())
            tasks.create_task(self._rights.run())
            tasks.create_task(self.policy.run(self.health, self.telemetry.policy_read))
            tasks.create_task(self.pools.run(self.health, self.telemetry.pools_read))
            await self.insist(_START, self.cluster.load)
            tasks.create_task(self.cluster.run())
            tasks.create_task(self._cpus.run())
            tasks.create_task(self.job_ids.run())

    def view(self) -> ClusterView:
        return self.cluster.view

    def translation(self) -> TranslationConfig:
        """Returns the settings of the translation, with Slurm's KillWait as last read. Returns the same
        object until KillWait changes."""
        rule = self._translation_now.grace
        if rule.kill_wait_s != self.cluster.kill_wait_s:
            rule = replace(rule, kill_wait_s=self.cluster.kill_wait_s)
            self._translation_now = replace(self._translation_now, grace=rule)
        return self._translation_now

    async def insist(
        self, part: str, act: Callable[[], Awaitable[Result]], pods: PodWatch | None = None
    ) -> Result:
        """Repeats an action until success, and returns the result. Until then, /readyz and the
        conditions of waiting `pods` report the error."""
        while True:
            try:
                result = await act()
            except (SlurmError, KubernetesError) as error:
                self.health.says(part, f"cannot start yet: {error}", because=error)
                if pods is not None:
                    failure = failure_of(error)
                    await startup.tell_those_who_wait(pods, self.kubernetes, failure, self.health)
                await asyncio.sleep(_RETRY_S)
            else:
                self.health.says(part, None)
                return result
