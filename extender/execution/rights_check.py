"""Checks each minute, on every replica, whether the extender may change the Pods in scope. The extender
may lose a right: for example, Kubernetes deletes the Role of a namespace with the namespace.

A check costs one request for each namespace in scope. Each right that no RBAC rule grants costs one more
request, because another authorizer may grant the right. In the scope `cluster`, a check costs three
requests.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from extender.execution.each_minute import RETRY_S, each_minute
from kubernetes_client.protocol import Kubernetes, Right
from service.health import Health

PART: Final = "rights"  # part of the health report


class RightsCheck:
    """`rights` are the rights to check."""

    def __init__(self, kubernetes: Kubernetes, health: Health, rights: Iterable[Right]) -> None:
        self._kubernetes, self._health, self._rights = kubernetes, health, tuple(rights)

    async def run(self) -> None:
        """Checks for ever."""
        await each_minute(self.look, PART, self._health)

    async def look(self) -> None:
        """Checks once, and again after a refusal. Raises KubernetesError."""
        denied = await self._kubernetes.denied(self._rights)
        if denied:
            await asyncio.sleep(RETRY_S)
            denied = await self._kubernetes.denied(denied)
        self._health.says(PART, _words(denied) if denied else None, alarm=True)


def _words(denied: Iterable[Right]) -> str:
    rights = ", ".join(map(str, denied))
    return (
        f"the extender lacks rights ({rights}). helm upgrade creates the Roles: Kubernetes deletes a"
        " Role with its namespace, and a new namespace of the same name has none. If a namespace is gone"
        " for good, remove the namespace from scheduler.scope.namespaces first: helm upgrade fails for a"
        " missing namespace"
    )
