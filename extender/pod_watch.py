"""Tells the dispatcher of every version of every Pod that names our scheduler."""

from __future__ import annotations

from extender.dispatcher import Dispatcher
from extender.health import Health
from extender.kubernetes_api import KubernetesApi
from extender.placement.events import PodObserved, PodVanished
from extender.placement.workload import Dialect, Pod, parse_pod
from extender.resource_watch import ResourceWatch


class PodWatch:
    """The API server selects the Pods: others cost nothing here."""

    def __init__(self, kubernetes: KubernetesApi, dialect: Dialect, health: Health) -> None:
        selector = f"spec.schedulerName={dialect.scheduler_name}"
        self._watch = ResourceWatch(
            kubernetes, "pods", selector, lambda trouble: health.says("watch of Pods", trouble)
        )
        self._dialect = dialect

    async def list(self) -> tuple[Pod, ...]:
        """Returns all Pods of ours; `run` goes on from there. Raises KubernetesError."""
        return tuple(parse_pod(manifest, self._dialect) for manifest in await self._watch.list())

    async def run(self, dispatcher: Dispatcher) -> None:
        """Feeds the dispatcher for ever, after `list`."""
        async for change in self._watch.changes():
            if change.gone:
                dispatcher.feed(PodVanished(change.manifest["metadata"]["uid"]))
            else:
                dispatcher.feed(PodObserved(parse_pod(change.manifest, self._dialect)))
