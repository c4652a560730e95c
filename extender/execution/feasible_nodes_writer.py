"""Reports to the leader, by an annotation on the Pod, the Nodes that kube-scheduler offers instead
of Slurm's Node.

kube-scheduler may call /filter on a replica that does not lead, so the leader reads the offered Nodes
from the annotation. Another attempt helps only on an offered Node. If kube-scheduler offers no Nodes,
the leader keeps the Pod back (`placement.transitions.kept_back`). The replica writes the annotation once
for each attempt. If a write fails, the replica does not repeat the write, because kube-scheduler calls
/filter again.
"""

import asyncio
from collections.abc import Sequence

import structlog

from extender.execution import pod_patches
from extender.pod_request.feasible_nodes import FeasibleNodes
from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from service.health import Health, common_problem
from wellknown.allocation import Allocation
from wellknown.log_fields import PodName, about

_MOST_WAITING = 1000

log = structlog.get_logger()


def is_annotated(pod: Manifest, allocation: Allocation | None) -> bool:
    """Returns True if the Pod has the annotation for this allocation."""
    before = FeasibleNodes.parse(pod["metadata"].get("annotations") or {})
    return before is not None and before.job_id == (0 if allocation is None else allocation.job_id)


class FeasibleNodesWriter:
    """Writes the offered Nodes onto Pods. `tell` queues the offered Nodes of a Pod and never waits;
    `run` writes the annotations."""

    def __init__(self, kubernetes: Kubernetes, health: Health) -> None:
        self._kubernetes, self._health = kubernetes, health
        self.offers: asyncio.Queue[tuple[PodName, FeasibleNodes]] = asyncio.Queue(_MOST_WAITING)

    def tell(self, pod: Manifest, allocation: Allocation | None, offered: Sequence[str]) -> None:
        """Queues the Nodes that kube-scheduler offers to a Pod, unless the Pod already has the
        annotation for this allocation, or the queue is full."""
        if not all(pod["metadata"].get(name) for name in ("namespace", "name", "uid")):
            return  # kube-scheduler sends no Pod without these fields
        if not is_annotated(pod, allocation) and not self.offers.full():
            job_id = 0 if allocation is None else allocation.job_id
            self.offers.put_nowait((PodName.of(pod["metadata"]), FeasibleNodes(job_id, tuple(offered))))

    async def run(self) -> None:
        """Writes for ever."""
        while True:
            pod, found = await self.offers.get()
            # The annotation names the job, so the annotation is right even if the Pod has changed.
            patch = pod_patches.annotated(pod.uid, found.annotations())
            try:
                await self._kubernetes.patch_pod(pod.namespace, pod.name, patch)
            except KubernetesError as error:
                tell = self._health.news(common_problem(error), log.info)
                tell("feasible Nodes not written", **about(pod, found.job_id or None), error=str(error))
