"""The secret that the replicas share, in a Secret beside the Lease: with it they name jobs of mapped
users, and prove which Pod such a job is of."""

from base64 import b64decode, b64encode
from binascii import Error
from secrets import token_bytes

import structlog

from kubernetes_client.errors import Conflict, Rejected
from kubernetes_client.protocol import Kubernetes, Manifest
from service.health import Health

NAME = "slurm-extender"
PART = "Secret slurm-extender"
"""What health has of this."""
_KEY = "key"
_BYTES = 32

log = structlog.get_logger()


async def shared_secret(kubernetes: Kubernetes, namespace: str, health: Health) -> bytes:
    """Returns the secret; makes it where there is none. Empty where this replica may not read or make
    it: health says so. Raises KubernetesError where kube-apiserver does not answer."""
    try:
        secret = await _made(kubernetes, namespace)
    except Rejected as error:
        health.says(PART, f"Pods of mapped users are placed a second later than they could be: {error}")
        return b""
    health.says(PART, None)
    return secret


async def known_secret(kubernetes: Kubernetes, namespace: str) -> bytes:
    """Returns the secret, and makes none; empty where there is none, or this program may not read it.
    Raises KubernetesError where kube-apiserver does not answer."""
    try:
        return _parsed(await kubernetes.read_secret(namespace, NAME))
    except Rejected:
        return b""


async def _made(kubernetes: Kubernetes, namespace: str) -> bytes:
    while True:
        kept = await kubernetes.read_secret(namespace, NAME)
        if secret := _parsed(kept):
            return secret
        metadata = {"name": NAME, "namespace": namespace}
        if kept is not None:
            metadata["resourceVersion"] = kept["metadata"]["resourceVersion"]
        data = {_KEY: b64encode(token_bytes(_BYTES)).decode()}
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        try:
            await kubernetes.write_secret(made)
            log.info("a secret was made", secret=NAME)
        except Conflict:  # another replica was faster
            continue


def _parsed(secret: Manifest | None) -> bytes:
    """Returns the secret in its manifest; empty where that has none, or too short a one."""
    text = ((secret or {}).get("data") or {}).get(_KEY) or ""
    try:
        found = b64decode(text)
    except Error:
        return b""
    return found[:_BYTES] if len(found) >= _BYTES else b""
