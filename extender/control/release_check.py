"""Looks for another release of the chart in the cluster: now and then, on every replica.

`helm install` refuses a second release. `kubectl apply` and tools of GitOps render the chart without
asking kube-apiserver. So each replica reads the labels of the admission policies.
"""

from collections.abc import Iterable
from typing import Final

from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from service.health import Health
from service.periodic import periodically
from wellknown.names import RELEASE_NAMESPACE

PART: Final = "release"
"""The part of health for other releases."""
_KIND: Final = "validatingadmissionpolicies"
_INSTANCE: Final = "app.kubernetes.io/instance"
_INTERVAL_S: Final = 60.0


async def other_releases(kubernetes: Kubernetes, namespace: str) -> str | None:
    """Returns words about releases besides the release in `namespace`, None without any. Raises
    KubernetesError."""
    return _words((await kubernetes.list(_KIND, None)).get("items") or (), namespace)


def _words(policies: Iterable[Manifest], namespace: str) -> str | None:
    others = set[str]()
    own = set[str]()
    for policy in policies:
        labels = policy["metadata"].get("labels") or {}
        if (where := labels.get(RELEASE_NAMESPACE)) is not None:
            release = f"{where}/{labels.get(_INSTANCE, '')} ({policy['metadata']['name']})"
            (own if where == namespace else others).add(release)
    found = sorted(others) if len(own) < 2 else sorted(own | others)
    if not found:
        return None
    return (
        f"another release of slurm-extender is in this cluster: {', '.join(found)}; this one is in the"
        f" namespace {namespace}. A cluster may have one: each forbids what the other writes onto Pods."
        " Uninstall one of them"
    )


class ReleaseCheck:
    """`namespace` is the extender's own."""

    def __init__(self, kubernetes: Kubernetes, health: Health, namespace: str) -> None:
        self._kubernetes = kubernetes
        self._health = health
        self._namespace = namespace

    async def run(self) -> None:
        """Looks for ever."""
        await periodically(self.look, _INTERVAL_S, outlives=KubernetesError, report=self._report)

    async def look(self) -> None:
        """Looks once. Raises KubernetesError."""
        words = await other_releases(self._kubernetes, self._namespace)
        self._health.says(PART, words, alarm=True)

    def _report(self, error: Exception | None) -> None:
        if error is not None:
            self._health.says(PART, error)
