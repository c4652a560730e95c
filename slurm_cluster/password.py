"""`slurm-cluster password`: a Secret with a password for programs, made once where there is none."""

import secrets
from base64 import b64encode

from kubernetes_client.errors import Conflict
from kubernetes_client.protocol import Kubernetes
from slurm_cluster.hand_out import Place

_BYTES = 32


async def ensure(kubernetes: Kubernetes, place: Place) -> str:
    """Makes the Secret where it is not there. Returns what was done. Raises KubernetesError."""
    if await kubernetes.read_secret(place.namespace, place.secret) is None:
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
            pass
        else:
            return f"Secret {place.secret} is made"
    return f"Secret {place.secret} is there already"
