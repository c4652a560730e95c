"""kube-apiserver, asked by a command that does one thing and ends."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from kubernetes_client.protocol import Kubernetes
from kubernetes_client.rest import KubernetesRest

_Answer = TypeVar("_Answer")


def ask(act: Callable[[Kubernetes], Awaitable[_Answer]], kubeconfig: Path | None) -> _Answer:
    """Returns what `act` does with a client, which is closed then. Without a kubeconfig it is this Pod's
    account that asks. Raises NoCredentials, and whatever `act` raises."""
    return asyncio.run(_ask(act, kubeconfig))


async def _ask(act: Callable[[Kubernetes], Awaitable[_Answer]], kubeconfig: Path | None) -> _Answer:
    kubernetes = await KubernetesRest.connect(kubeconfig)
    try:
        return await act(kubernetes)
    finally:
        await kubernetes.aclose()
