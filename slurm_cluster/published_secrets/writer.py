"""Writes contents to existing Secrets only, so the service account needs rights for these Secrets
only."""

import asyncio
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubernetes_client.errors import Conflict
from kubernetes_client.protocol import Kubernetes, Manifest
from slurm_cluster.programs import ProgramFailed, run
from slurm_cluster.published_secrets.places import Copy, Place

_TOKEN: Final = re.compile(r"^SLURM_JWT=(?P<token>\S+)$", re.MULTILINE)
_USER: Final = "slurm"
_EACH_S: Final = 5.0
"""Pause between two requests while slurmctld does not answer."""
_TRIES: Final = 5
"""Maximum number of attempts to write a Secret that other clients also write."""
Contents = Mapping[str, bytes | None]
"""Contents by the key of the Secret. None means that the key is removed."""


class Missing(Exception):
    """Raised if a Secret is missing. The message names the Secret."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The contents to publish."""

    token: Place | None = None
    lifespan_s: int = 0
    """Lifetime of the token."""
    copies: Sequence[Copy] = ()
    within_s: float = 300.0
    """Maximum time to wait for slurmctld."""


def mint(lifespan_s: int, within_s: float, program: Callable[..., str] = run) -> str:
    """Returns a new token of SlurmUser. Waits until slurmctld answers. Raises ProgramFailed."""
    deadline = time.monotonic() + within_s
    command = ("scontrol", "token", f"username={_USER}", f"lifespan={lifespan_s}")
    while True:
        try:
            output = program(*command)
            break
        except ProgramFailed:
            if time.monotonic() + _EACH_S > deadline:
                raise
            time.sleep(_EACH_S)
    if found := _TOKEN.search(output):
        return found["token"]
    raise ProgramFailed(command, "its output has no token")


async def publish(kubernetes: Kubernetes, wanted: Wanted) -> list[str]:
    """Writes each Secret once. Returns a line for each Secret. Raises Missing, ProgramFailed,
    KubernetesError, OSError."""
    secrets = dict[tuple[str, str], dict[str, bytes | None]]()
    for (namespace, name, key), file in wanted.copies:
        secrets.setdefault((namespace, name), {})[key] = file.read_bytes() if file.exists() else None
    if wanted.token is not None:
        namespace, name, key = wanted.token
        token = await asyncio.to_thread(mint, wanted.lifespan_s, wanted.within_s)
        secrets.setdefault((namespace, name), {})[key] = token.encode()
    return [
        await _write(kubernetes, namespace, name, contents)
        for (namespace, name), contents in secrets.items()
    ]


async def _write(kubernetes: Kubernetes, namespace: str, name: str, contents: Contents) -> str:
    for left in reversed(range(_TRIES)):
        secret = await kubernetes.read_secret(namespace, name)
        if secret is None:
            raise Missing(f"Secret {namespace}/{name} is missing: the chart creates the Secret")
        if not differs(secret, contents):
            break
        try:
            await kubernetes.write_secret(filled(secret, contents))
        except Conflict:
            if not left:
                raise
        else:
            return f"Secret {namespace}/{name} is written: {', '.join(sorted(contents))}"
    return f"Secret {namespace}/{name} is up to date"


def differs(secret: Manifest, contents: Contents) -> bool:
    """Returns True if the contents of the Secret differ from these contents."""
    data = secret.get("data") or {}
    return any((b64decode(data[key]) if key in data else None) != contents[key] for key in contents)


def filled(secret: Manifest, contents: Contents) -> Manifest:
    """Returns the Secret with these contents. Other keys of the Secret stay."""
    data = {key: text for key, text in (secret.get("data") or {}).items() if key not in contents}
    data |= {key: b64encode(text).decode() for key, text in contents.items() if text is not None}
    return {**secret, "data": data}
