"""Reads, writes and rotates slurm.jwks, the file with the keys of auth/slurm. One key signs, and all
keys verify.

The format is Slurm's (authentication.html, "Multiple Key Setup"). Since 24.05, slurmctld, slurmdbd,
slurmd and sackd read a slurm.jwks beside slurm.conf, and read slurm.jwks again at `scontrol
reconfigure`. A rotation has three steps. All daemons must have read the file before the next step:

* ADD adds a new key, which does not sign yet.
* USE signs with the new key. Credentials of the old key stay valid.
* DROP removes the old key.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from wellknown.quoting import words_of

SLURM_KEY: Final = "slurm.key"
SLURM_JWKS: Final = "slurm.jwks"


class Stage(StrEnum):
    """The next step of a rotation."""

    ADD = "add"
    USE = "use"
    DROP = "drop"


class WrongKeys(Exception):
    """Raised if the content of slurm.jwks is invalid."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of slurm.jwks."""

    id: str
    value: bytes
    signs: bool = False


Keys = tuple[Key, ...]


def parse(text: bytes) -> Keys:
    """Parses slurm.jwks. Raises WrongKeys."""
    try:
        keys = json.loads(text)["keys"]
        return tuple(Key(key["kid"], _decoded(key["k"]), key.get("use") == "default") for key in keys)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WrongKeys(f"slurm.jwks: {words_of(error)}") from error


def render(keys: Sequence[Key]) -> bytes:
    """Returns the content of slurm.jwks."""
    documents = [
        {"alg": "HS256", "kty": "oct", "kid": key.id, "k": urlsafe_b64encode(key.value).decode()}
        | ({"use": "default"} if key.signs else {})
        for key in keys
    ]
    return f"{json.dumps({'keys': documents}, indent=2)}\n".encode()


def stage(keys: Sequence[Key]) -> Stage:
    """Returns the next step of a rotation. In the file, a new key comes after the signing key. An old
    key comes before the signing key."""
    if len(keys) == 1:
        return Stage.ADD
    return Stage.DROP if keys[-1].signs else Stage.USE


def rotated(keys: Sequence[Key], new: Key) -> Keys:
    """Returns the keys after the next step. `new` is the key that the step ADD adds."""
    match stage(keys):
        case Stage.ADD:
            return (*(replace(key, signs=True) for key in keys), replace(new, signs=False))
        case Stage.USE:
            return (*(replace(key, signs=False) for key in keys[:-1]), replace(keys[-1], signs=True))
        case Stage.DROP:
            return (keys[-1],)


def signing(keys: Sequence[Key]) -> Key:
    """Returns the signing key: the key with `signs`, or the first key."""
    return next((key for key in keys if key.signs), keys[0])


def known(files: Mapping[str, bytes]) -> frozenset[bytes]:
    """Returns the keys that a daemon with these files knows. The keys are from slurm.jwks, or from
    slurm.key if slurm.jwks is missing (auth/slurm, init_internal)."""
    if SLURM_JWKS in files:
        try:
            return frozenset(key.value for key in parse(files[SLURM_JWKS]))
        except WrongKeys:
            return frozenset()
    return frozenset({files[SLURM_KEY]} if SLURM_KEY in files else ())


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
