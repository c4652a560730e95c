"""Creates and rotates the Secrets of keys.

A Secret is created if it is missing. Only a rotation changes a Secret, and only if no other client has
changed the Secret since the rotation read it.
"""

import secrets
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kubernetes_client.protocol import Kubernetes, Manifest
from slurm_cluster import jwks
from slurm_cluster.jwks import SLURM_JWKS, SLURM_KEY, Key, Stage
from slurm_cluster.kubernetes_session import Data, ensure_secret, opaque_secret

JWT_KEY: Final = "jwt_hs256.key"
_BYTES: Final = 64
_STAGED: Final = "slurm-cluster/key-stage"
"""Annotation with the time and the name of a rotation's last step."""
_NEXT: Final = {
    Stage.ADD: "after every daemon has read the new key, rotate again to sign with the new key",
    Stage.USE: "after the last use of the old key's credentials, rotate again to remove the old key",
    Stage.DROP: "the rotation is complete",
}
_OLD_TOKENS: Final = (
    "restart slurmdbd: until then slurmdbd accepts all tokens of the old key, and rejects tokens of the"
    " new key. slurmctld rejects all tokens of the old key after reading the new key: create new tokens"
)


class NotNow(Exception):
    """Raised if the next step of a rotation is too early, or if a key to rotate is missing."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the Secrets, in one namespace."""

    namespace: str
    slurm_key: str
    jwt_key: str


def new_slurm_key(now: datetime) -> Key:
    """Returns a new key of auth/slurm."""
    return Key(f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}", secrets.token_bytes(_BYTES), signs=True)


async def ensure(kubernetes: Kubernetes, names: Names) -> list[str]:
    """Creates the missing Secrets. Returns a line for each Secret. Raises KubernetesError."""

    def of_slurm() -> Data:
        key = new_slurm_key(datetime.now(UTC))
        return {SLURM_KEY: key.value, SLURM_JWKS: jwks.render([key])}

    def of_jwt() -> Data:
        return {JWT_KEY: secrets.token_bytes(_BYTES)}

    return [
        await ensure_secret(kubernetes, names.namespace, names.slurm_key, of_slurm),
        await ensure_secret(kubernetes, names.namespace, names.jwt_key, of_jwt),
    ]


async def rotate_slurm_key(
    kubernetes: Kubernetes, names: Names, now: datetime, pause: timedelta
) -> list[str]:
    """Carries out the next step of a rotation. Returns messages about the step. Raises NotNow if the
    last step was less than `pause` ago. Also raises WrongKeys and KubernetesError."""
    secret = await _read(kubernetes, names.namespace, names.slurm_key)
    keys = _keys(secret)
    step = jwks.stage(keys)
    if step is not Stage.ADD:
        _require_pause(secret, now, pause)
    after = jwks.rotated(keys, new_slurm_key(now))
    data = {SLURM_JWKS: jwks.render(after), SLURM_KEY: jwks.signing(after).value}
    await kubernetes.write_secret(_changed(secret, data, {_STAGED: f"{now.isoformat()} {step}"}))
    return [f"{step}: {', '.join(_label(key) for key in after)}", _NEXT[step]]


async def rotate_jwt_key(kubernetes: Kubernetes, names: Names, now: datetime) -> list[str]:
    """Replaces the key of auth/jwt. Returns messages about the result. Raises NotNow,
    KubernetesError."""
    secret = await _read(kubernetes, names.namespace, names.jwt_key)
    data = {JWT_KEY: secrets.token_bytes(_BYTES)}
    await kubernetes.write_secret(_changed(secret, data, {_STAGED: f"{now.isoformat()} replaced"}))
    return [f"Secret {names.jwt_key}: has a new key", _OLD_TOKENS]


async def _read(kubernetes: Kubernetes, namespace: str, name: str) -> Manifest:
    secret = await kubernetes.read_secret(namespace, name)
    if secret is None:
        raise NotNow(f"Secret {name} in {namespace} is missing: `keys ensure` creates the Secret")
    return secret


def _keys(secret: Manifest) -> jwks.Keys:
    """Returns the keys of a Secret. A Secret with slurm.key and without slurm.jwks has one key. The
    credentials of this key have no id."""
    data = secret.get("data") or {}
    if SLURM_JWKS in data:
        return jwks.parse(b64decode(data[SLURM_JWKS]))
    if SLURM_KEY in data:
        return (Key("first", b64decode(data[SLURM_KEY]), signs=True),)
    raise NotNow(f"Secret {secret['metadata']['name']} has neither {SLURM_JWKS} nor {SLURM_KEY}")


def _require_pause(secret: Manifest, now: datetime, pause: timedelta) -> None:
    staged = (secret["metadata"].get("annotations") or {}).get(_STAGED, "").partition(" ")[0]
    since = now - datetime.fromisoformat(staged) if staged else pause
    if since < pause:
        left = (pause - since).total_seconds()
        raise NotNow(f"the last step was {since.total_seconds():.0f} s ago: wait another {left:.0f} s")


def _label(key: Key) -> str:
    return f"{key.id} (signs)" if key.signs else key.id


def _changed(secret: Manifest, data: Data, annotations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the Secret with new data. The resourceVersion stays the same, so a write fails if the
    Secret has changed since the read."""
    metadata = dict(secret["metadata"])
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    changed = dict(secret) | opaque_secret(metadata, data)
    return changed | {
        "type": secret.get("type", "Opaque"),
        "data": {**secret["data"], **changed["data"]},
    }
