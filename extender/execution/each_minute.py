"""Repeats a check of Kubernetes each minute, and sooner after a failure. Runs on every replica."""

from collections.abc import Awaitable, Callable
from typing import Final

from kubernetes_client.errors import KubernetesError
from service.health import Health
from service.periodic import periodically

_INTERVAL_S: Final = 60.0
RETRY_S: Final = 10.0
"""Seconds until a check asks again after a refusal or a failure. The check reports a problem only after
the second refusal or failure in a row, because a starting kube-apiserver rejects even allowed requests
for a moment."""


async def each_minute(look: Callable[[], Awaitable[object]], part: str, health: Health) -> None:
    """Calls `look` for ever. Reports the second KubernetesError in a row as a problem of `part`."""
    failed = False

    def report(error: Exception | None) -> None:
        nonlocal failed
        if error is not None and failed:
            health.says(part, error)
        failed = error is not None

    await periodically(look, _INTERVAL_S, outlives=KubernetesError, retry=RETRY_S, report=report)
