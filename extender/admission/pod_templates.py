"""Finds the Pod templates in objects of other kinds, for example in a Deployment."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_EACH = "*"
_TEMPLATES: Mapping[tuple[str, str], Sequence[str]] = {
    ("apps", "DaemonSet"): ("spec.template",),
    ("apps", "Deployment"): ("spec.template",),
    ("apps", "ReplicaSet"): ("spec.template",),
    ("apps", "StatefulSet"): ("spec.template",),
    ("batch", "CronJob"): ("spec.jobTemplate.spec.template",),
    ("batch", "Job"): ("spec.template",),
    ("jobset.x-k8s.io", "JobSet"): ("spec.replicatedJobs.*.template.spec.template",),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (
        "spec.leaderWorkerTemplate.leaderTemplate",
        "spec.leaderWorkerTemplate.workerTemplate",
    ),
}
"""The paths of the Pod templates, by API group and kind. A star stands for each item of a list."""


def pod_templates(group: str, kind: str, manifest: Any) -> Iterator[tuple[str, Any]]:
    """Yields an object's Pod templates, each with the path in the object. Yields nothing for a kind
    outside `_TEMPLATES`, and for a path that the object does not have."""
    for path in _TEMPLATES.get((group, kind), ()):
        yield from each_at(manifest, path)


def each_at(manifest: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields the values at a path with the fields' names, each with its place. A star in the path stands
    for each item of a list. Yields nothing if the path does not exist."""
    yield from _at("", manifest, path.split("."))


def _at(place: str, value: Any, path: Sequence[str]) -> Iterator[tuple[str, Any]]:
    if not path:
        yield place, value
        return
    name, *rest = path
    if name == _EACH:
        for number, item in enumerate(value if isinstance(value, list) else ()):
            yield from _at(f"{place}[{number}]", item, rest)
    elif isinstance(value, dict) and name in value:
        yield from _at(f"{place}.{name}".removeprefix("."), value[name], rest)
