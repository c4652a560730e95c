"""`slurm-cluster hand-out`: what other namespaces need of this Slurm, written into their Secrets.

slurm-extender needs a token of SlurmUser, which ends some day; slurmd Pods need the key. The Secrets are there
already: so the account may change these, and no others.
"""

import asyncio
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

import structlog

from kubernetes_client.errors import Conflict
from kubernetes_client.protocol import Kubernetes, Manifest
from slurm_cluster.programs import ProgramFailed, run

log = structlog.get_logger()

_TOKEN: Final = re.compile(r"^SLURM_JWT=(?P<token>\S+)$", re.MULTILINE)
_USER: Final = "slurm"
_EACH_S: Final = 5.0
"""Between two questions of a slurmctld that does not answer."""
_TRIES: Final = 5
"""How often a Secret is written that others write, too."""


class Missing(Exception):
    """A Secret that should be there is not; the text says which."""


class Place(NamedTuple):
    """A key of a Secret."""

    namespace: str
    secret: str
    key: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads NAMESPACE/SECRET/KEY. Raises ValueError."""
        parts = text.split("/")
        if len(parts) != len(cls._fields) or not all(parts):
            raise ValueError(f"{text!r} is not NAMESPACE/SECRET/KEY")
        return cls(*parts)


class Copy(NamedTuple):
    """A file, and where it goes."""

    place: Place
    file: Path

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads NAMESPACE/SECRET/KEY=PATH. Raises ValueError."""
        place, _, file = text.partition("=")
        if not file:
            raise ValueError(f"{text!r} is not NAMESPACE/SECRET/KEY=PATH")
        return cls(Place.parse(place), Path(file))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be handed out."""

    token: Place | None = None
    lifespan_s: int = 0
    """Of the token."""
    copies: Sequence[Copy] = ()
    """A file that is not there is none in the Secret either."""


def mint(lifespan_s: int, within_s: float, program: Callable[..., str] = run) -> str:
    """Returns a new token of SlurmUser, by scontrol. A slurmctld that does not answer yet is asked again.
    Raises ProgramFailed."""
    deadline = time.monotonic() + within_s
    command = ("scontrol", "token", f"username={_USER}", f"lifespan={lifespan_s}")
    while True:
        try:
            said = program(*command)
        except ProgramFailed:
            if time.monotonic() + _EACH_S > deadline:
                raise
            time.sleep(_EACH_S)
            continue
        if found := _TOKEN.search(said):
            return found["token"]
        raise ProgramFailed(command, f"no token is in what it said: {said.strip()!r}")


async def hand_out(kubernetes: Kubernetes, wanted: Wanted, within_s: float) -> None:
    """Writes each Secret once. Raises Missing, ProgramFailed, KubernetesError, OSError."""
    contents = dict[tuple[str, str], dict[str, bytes | None]]()
    for place, file in wanted.copies:
        content = file.read_bytes() if file.exists() else None
        contents.setdefault(place[:2], {})[place.key] = content
    if wanted.token is not None:
        token = await asyncio.to_thread(mint, wanted.lifespan_s, within_s)
        contents.setdefault(wanted.token[:2], {})[wanted.token.key] = token.encode()
    for (namespace, name), files in contents.items():
        await _write(kubernetes, namespace, name, files)


async def _write(
    kubernetes: Kubernetes, namespace: str, name: str, files: Mapping[str, bytes | None]
) -> None:
    for tries_left in reversed(range(_TRIES)):
        secret = await kubernetes.read_secret(namespace, name)
        if secret is None:
            raise Missing(f"there is no Secret {namespace}/{name}: the chart makes it")
        if not changed(secret, files):
            log.info("the Secret is as it should be", namespace=namespace, secret=name)
            return
        try:
            await kubernetes.write_secret(filled(secret, files))
        except Conflict:
            if not tries_left:
                raise
        else:
            log.info("the Secret is written", namespace=namespace, secret=name, keys=sorted(files))
            return


def changed(secret: Manifest, files: Mapping[str, bytes | None]) -> bool:
    """Tells whether a Secret has other contents than these. None: the key is not to be there."""
    data = secret.get("data") or {}
    told = {key: b64decode(data[key]) if key in data else None for key in files}
    return told != dict(files)


def filled(secret: Manifest, files: Mapping[str, bytes | None]) -> Manifest:
    """Returns the Secret with these contents besides those that it has."""
    data = {key: text for key, text in (secret.get("data") or {}).items() if key not in files}
    data |= {key: b64encode(content).decode() for key, content in files.items() if content is not None}
    return {**secret, "data": data}
