"""Opens sessions with kube-apiserver for commands, and creates Secrets."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kubernetes_client.errors import Conflict
from kubernetes_client.protocol import Kubernetes
from kubernetes_client.rest import KubernetesRest

_Answer = TypeVar("_Answer")
Data = Mapping[str, bytes]


def ask(act: Callable[[Kubernetes], Awaitable[_Answer]], kubeconfig: Path | None) -> _Answer:
    """Calls `act` with a client of kube-apiserver, closes the client, and returns the result. Without a
    kubeconfig, the client uses the Pod's service account. Raises NoCredentials, and the errors of
    `act`."""
    return asyncio.run(_ask(act, kubeconfig))


async def _ask(act: Callable[[Kubernetes], Awaitable[_Answer]], kubeconfig: Path | None) -> _Answer:
    kubernetes = await KubernetesRest.connect(kubeconfig)
    try:
        return await act(kubernetes)
    finally:
        await kubernetes.aclose()


async def ensure_secret(
    kubernetes: Kubernetes, namespace: str, name: str, make: Callable[[], Data]
) -> str:
    """Creates a Secret if the Secret is missing. Returns a message with the result. Raises
    KubernetesError."""
    if await kubernetes.read_secret(namespace, name) is not None:
        return f"Secret {name} exists already"
    try:
        await kubernetes.write_secret(opaque_secret({"namespace": namespace, "name": name}, make()))
    except Conflict:  # another client created the Secret at the same moment
        return f"Secret {name} exists already"
    return f"Secret {name} is created"


def opaque_secret(metadata: Mapping[str, Any], data: Data) -> dict[str, Any]:
    """Returns the manifest of a Secret."""
    encoded = {name: b64encode(value).decode() for name, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": metadata,
        "data": encoded,
    }
