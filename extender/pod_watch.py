"""Tells the dispatcher of every version of every Pod that names our scheduler."""

from __future__ import annotations

from collections.abc import Callable

from extender.dispatcher import Dispatcher
from extender.health import Health
from extender.kubernetes_api import KubernetesApi, Manifest
from extender.placement.events import PodObserved, PodVanished
from extender.placement.workload import Dialect, Pod, Request, parse_pod
from extender.resource_watch import ResourceWatch

_Asked = tuple[int | None, Dialect, tuple[tuple[str, str], ...]]
"""A Pod's generation, how it was read, and those of its annotations that Slurm is asked by."""


class PodWatch:
    """The API server selects the Pods: others cost nothing here. `dialect` gives how they are read at
    this moment, the same object while nothing changes."""

    def __init__(
        self, kubernetes: KubernetesApi, dialect: Callable[[], Dialect], health: Health
    ) -> None:
        selector = f"spec.schedulerName={dialect().scheduler_name}"
        self._watch = ResourceWatch(
            kubernetes, "pods", selector, lambda trouble: health.says("watch of Pods", trouble)
        )
        self._dialect = dialect
        self._requests: dict[str, tuple[_Asked, Request]] = {}

    async def list(self) -> tuple[Pod, ...]:
        """Returns all Pods of ours; `run` goes on from there. Raises KubernetesError."""
        return tuple(self._parse(manifest) for manifest in await self._watch.list())

    async def run(self, dispatcher: Dispatcher) -> None:
        """Feeds the dispatcher for ever, after `list`."""
        async for change in self._watch.changes():
            if change.gone:
                uid = change.manifest["metadata"]["uid"]
                self._requests.pop(uid, None)
                dispatcher.feed(PodVanished(uid))
            else:
                dispatcher.feed(PodObserved(self._parse(change.manifest)))

    def _parse(self, manifest: Manifest) -> Pod:
        """What a Pod asks for is read once for each generation of its spec: most versions of it differ
        in their status only. A kube-apiserver before 1.33 does not number generations of Pods."""
        metadata = manifest["metadata"]
        dialect = self._dialect()
        uid, prefix = metadata["uid"], dialect.annotation_prefix
        annotations = (metadata.get("annotations") or {}).items()
        ours = tuple((key, value) for key, value in annotations if key.startswith(prefix))
        asked = (metadata.get("generation"), dialect, ours)
        before = self._requests.get(uid)
        if before is not None and asked[0] is not None and before[0] == asked:
            return parse_pod(manifest, dialect, before[1])
        pod = parse_pod(manifest, dialect)
        self._requests[uid] = (asked, pod.request)
        return pod
