"""Checks each minute whether the extender may change the Pods in scope. Runs on every replica.

In the scope `namespace`, each namespace has a Role for the extender. Kubernetes deletes the Role with
the namespace. A new namespace of the same name has no Role until the next `helm upgrade`.

A check costs one request for each namespace in scope, and one more for each right that is missing, or
that only an authorizer other than RBAC grants. In the scope `cluster`, a check costs three requests.
Before it reports a missing right, a check asks once more.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Right
from service.health import Health
from service.periodic import periodically

PART: Final = "rights"
"""The part of health for rights to Pods in scope."""
_INTERVAL_S: Final = 60.0
_RETRY_S: Final = 10.0
"""Seconds until the check asks again after a refusal or a failure, before it reports a problem: a
kube-apiserver that starts forbids for a moment what it allows."""


class RightsCheck:
    """`rights` are the rights to check."""

    def __init__(self, kubernetes: Kubernetes, health: Health, rights: Iterable[Right]) -> None:
        self._kubernetes = kubernetes
        self._health = health
        self._rights = tuple(rights)
        self._failed = False

    async def run(self) -> None:
        """Checks for ever."""
        await periodically(
            self.look, _INTERVAL_S, outlives=KubernetesError, retry=_RETRY_S, report=self._report
        )

    async def look(self) -> None:
        """Checks once, and again after a refusal. Raises KubernetesError."""
        denied = await self._kubernetes.denied(self._rights)
        if denied:
            await asyncio.sleep(_RETRY_S)
            denied = await self._kubernetes.denied(denied)
        self._health.says(PART, _words(denied) if denied else None, alarm=True)

    def _report(self, error: Exception | None) -> None:
        if error is not None and self._failed:
            self._health.says(PART, error)
        self._failed = error is not None


def _words(denied: Iterable[Right]) -> str:
    rights = ", ".join(map(str, denied))
    return (
        f"the extender lacks rights ({rights}). helm upgrade creates the Roles: Kubernetes deletes a"
        " Role with its namespace, and a new namespace of the same name has none"
    )
