"""Creates a Secret with a password for programs if the Secret is missing."""

import secrets
from typing import Final

from kubernetes_client.protocol import Kubernetes
from slurm_cluster.kubernetes_session import ensure_secret
from slurm_cluster.published_secrets.places import Place

_BYTES: Final = 32


async def ensure(kubernetes: Kubernetes, place: Place) -> str:
    """Creates the Secret if it is missing. Returns a message with the result. Raises KubernetesError."""

    def make() -> dict[str, bytes]:
        return {place.key: secrets.token_hex(_BYTES).encode()}

    return await ensure_secret(kubernetes, place.namespace, place.secret, make)
