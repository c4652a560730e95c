"""A Secret with a password for programs, made once where there is none."""

import secrets
from base64 import b64encode
from typing import Final

from kubernetes_client.errors import Conflict
from kubernetes_client.protocol import Kubernetes
from slurm_cluster.hand_out.places import Place

_BYTES: Final = 32


async def ensure(kubernetes: Kubernetes, place: Place) -> str:
    """Makes the Secret where it is not there. Returns what was done. Raises KubernetesError."""
    if await kubernetes.read_secret(place.namespace, place.secret) is not None:
        return f"Secret {place.secret} is there already"
    password = b64encode(secrets.token_hex(_BYTES).encode()).decode()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"namespace": place.namespace, "name": place.secret},
        "data": {place.key: password},
    }
    try:
        await kubernetes.write_secret(secret)
    except Conflict:  # somebody else made it at the same moment
        return f"Secret {place.secret} is there already"
    return f"Secret {place.secret} is made"
