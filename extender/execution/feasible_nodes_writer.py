"""Tells the leader, by an annotation on the Pod, that it cannot be bound to the Node that Slurm chose.

/filter sees this on the replica that kube-scheduler calls: kube-scheduler offers other Nodes, without
that Node or (where /bind found no room on it) besides it. The leader needs their names, since only they
are worth another attempt. Where kube-scheduler offered none, the next attempt waits until it does
(`placement.kept_back`): that is written once for each attempt. A write that fails is not repeated:
kube-scheduler also says on the Pod that it found no Node, and asks again.
"""

import asyncio
from collections.abc import Sequence

import structlog

from extender.execution import pod_patches
from extender.pod_request.feasible_nodes import FeasibleNodes
from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from service.health import Health, common_trouble
from wellknown.allocation import Allocation
from wellknown.log_fields import PodName, about

_MOST_WAITING = 1000

log = structlog.get_logger()


def is_told(pod: Manifest, allocation: Allocation | None) -> bool:
    """Tells whether the Pod has the annotation for this allocation already."""
    before = FeasibleNodes.parse(pod["metadata"].get("annotations") or {})
    return before is not None and before.job_id == (0 if allocation is None else allocation.job_id)


class FeasibleNodesWriter:
    """`tell` never waits; `run` writes."""

    def __init__(self, kubernetes: Kubernetes, health: Health) -> None:
        self._kubernetes = kubernetes
        self._health = health
        self.told: asyncio.Queue[tuple[PodName, FeasibleNodes]] = asyncio.Queue(_MOST_WAITING)

    def tell(self, pod: Manifest, allocation: Allocation | None, offered: Sequence[str]) -> None:
        """Queues a note that kube-scheduler offered other Nodes to a Pod than the allocated one, if
        there is one."""
        if not all(pod["metadata"].get(name) for name in ("namespace", "name", "uid")):
            return  # kube-scheduler sends no such Pod
        if not is_told(pod, allocation) and not self.told.full():
            job_id = 0 if allocation is None else allocation.job_id
            self.told.put_nowait((PodName.of(pod["metadata"]), FeasibleNodes(job_id, tuple(offered))))

    async def run(self) -> None:
        """Writes for ever."""
        while True:
            pod, found = await self.told.get()
            # It names the job, and so it is not wrong on a Pod that has changed.
            patch = pod_patches.annotated(pod.uid, found.annotations())
            try:
                await self._kubernetes.patch_pod(pod.namespace, pod.name, patch)
            except KubernetesError as error:
                tell = self._health.news(common_trouble(error), log.info)
                tell("feasible Nodes not written", **about(pod, found.job_id or None), error=str(error))
