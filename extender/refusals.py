"""Tells the leader, by an annotation on the Pod, that it cannot be bound to the Node that Slurm chose.

/filter sees it on whichever replica kube-scheduler asks: it offers other Nodes, without that one or
(where /bind found no room on it) besides it. Which ones is worth knowing, since only those are worth
another attempt. Where it offered none, the next attempt waits until it does (`placement.kept_back`):
that is told once for each attempt. What cannot be written is not: kube-scheduler says on the Pod too
that it found no Node, and asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from extender import pod_writes
from extender.kubernetes_api import KubernetesApi, KubernetesError
from extender.placement.workload import Allocation, Offer

_MOST_WAITING = 1000

log = structlog.get_logger()


def is_told(pod: Mapping[str, Any], allocation: Allocation | None) -> bool:
    """Tells whether the Pod tells already of Nodes that were offered to it."""
    before = Offer.parse(pod["metadata"].get("annotations") or {})
    return before is not None and before.job_id == (0 if allocation is None else allocation.job_id)


class Refusals:
    """`tell` never waits; `run` writes."""

    def __init__(self, kubernetes: KubernetesApi) -> None:
        self._kubernetes = kubernetes
        self._told: asyncio.Queue[tuple[Mapping[str, Any], Offer]] = asyncio.Queue(_MOST_WAITING)

    def tell(
        self, pod: Mapping[str, Any], allocation: Allocation | None, offered: Sequence[str]
    ) -> None:
        """Notes that other Nodes were offered to a Pod than the one that it was allocated, if any."""
        if not all(pod["metadata"].get(name) for name in ("namespace", "name", "uid")):
            return  # kube-scheduler sends no such Pod
        if not is_told(pod, allocation) and not self._told.full():
            job_id = 0 if allocation is None else allocation.job_id
            self._told.put_nowait((pod["metadata"], Offer(job_id, tuple(offered))))

    async def run(self) -> None:
        """Writes for ever."""
        while True:
            metadata, offer = await self._told.get()
            namespace, name = metadata["namespace"], metadata["name"]
            patch = pod_writes.offer(metadata["uid"], offer)
            try:
                await self._kubernetes.patch_pod(namespace, name, patch)
            except KubernetesError as error:
                log.info("refusal not written", pod=f"{namespace}/{name}", error=str(error))
