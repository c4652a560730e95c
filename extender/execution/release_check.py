"""Checks on every replica whether the cluster has another release of the chart. The labels of the
admission policies name the release. `helm install` refuses a second release, but `kubectl apply` and
GitOps tools do not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from extender.execution.each_minute import each_minute
from kubernetes_client.protocol import Kubernetes
from service.health import Health
from wellknown.names import RELEASE_NAMESPACE

PART: Final = "release"  # part of the health report
_KIND: Final = "validatingadmissionpolicies"
_INSTANCE: Final = "app.kubernetes.io/instance"


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A release of the chart; `policy` is the admission policy that names the release."""

    namespace: str
    name: str
    policy: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.policy})"


async def releases(kubernetes: Kubernetes) -> tuple[Release, ...]:
    """Returns the releases in the cluster. Raises KubernetesError."""
    found = list[Release]()
    for policy in (await kubernetes.list(_KIND, None)).get("items") or ():
        labels = policy["metadata"].get("labels") or {}
        if (namespace := labels.get(RELEASE_NAMESPACE)) is not None:
            found.append(Release(namespace, labels.get(_INSTANCE, ""), policy["metadata"]["name"]))
    return tuple(sorted(found))


def _words(found: Sequence[Release], namespace: str) -> str | None:
    others = [each for each in found if each.namespace != namespace]
    named = found if len(found) > len(others) + 1 else others
    if not named:
        return None
    return (
        f"another release of slurm-extender is in this cluster: {', '.join(map(str, named))}; this one"
        f" is in the namespace {namespace}. Uninstall one of the releases: each forbids the other's"
        " writes onto Pods"
    )


class ReleaseCheck:
    """The check for another release. `namespace` is the extender's own namespace."""

    def __init__(self, kubernetes: Kubernetes, health: Health, namespace: str) -> None:
        self._kubernetes, self._health, self._namespace = kubernetes, health, namespace

    async def run(self) -> None:
        """Repeats the check for ever."""
        await each_minute(self.look, PART, self._health)

    async def look(self) -> None:
        """Checks once. Raises KubernetesError."""
        words = _words(await releases(self._kubernetes), self._namespace)
        self._health.says(PART, words, alarm=True)
