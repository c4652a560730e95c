"""Looks whether the extender may change the Pods in scope: now and then, on every replica.

In the scope `namespace`, each namespace has a Role for the extender. Kubernetes deletes the Role with
the namespace. A new namespace of the same name has no Role until the next `helm upgrade`.
"""

from collections.abc import Iterable
from typing import Final

from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Right
from service.health import Health
from service.periodic import periodically

PART: Final = "rights"
"""The part of health for rights in the namespaces in scope."""
_INTERVAL_S: Final = 60.0


class RightsCheck:
    """`namespaces` are those in scope, none where all namespaces are."""

    def __init__(self, kubernetes: Kubernetes, health: Health, namespaces: Iterable[str]) -> None:
        self._kubernetes = kubernetes
        self._health = health
        self._namespaces = sorted(namespaces)

    async def run(self) -> None:
        """Looks for ever."""
        await periodically(self.look, _INTERVAL_S, outlives=KubernetesError, report=self._report)

    async def look(self) -> None:
        """Looks once. Raises KubernetesError."""
        without = [name for name in self._namespaces if not await self._may_change_pods(name)]
        self._health.says(PART, _words(without) if without else None, alarm=True)

    async def _may_change_pods(self, namespace: str) -> bool:
        return await self._kubernetes.allows(Right("patch", "pods", namespace=namespace))

    def _report(self, error: Exception | None) -> None:
        if error is not None:
            self._health.says(PART, error)


def _words(without: Iterable[str]) -> str:
    return (
        f"the extender may not change Pods of {', '.join(without)}: a namespace that was deleted and"
        " created again lacks the extender's Role. helm upgrade creates the Role"
    )
