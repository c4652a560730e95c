"""slurm.jwks: the keys of auth/slurm, of which one signs and all others are still good.

The form is Slurm's (authentication.html, "Multiple Key Setup"): since 24.05 slurmctld, slurmdbd, slurmd
and sackd read it where it is beside slurm.conf, and read it again at `scontrol reconfigure`. A rotation
has three steps, and between two of them every daemon has to have read the file:

    ADD   a new key, which signs nothing yet         every daemon knows it, before
    USE   the new key signs; the old one is still good   what it has signed stays good, until
    DROP  the old one
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
    """What should be slurm.jwks is not."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of slurm.jwks."""

    id: str
    value: bytes
    signs: bool = False


Keys = tuple[Key, ...]


def parse(text: bytes) -> Keys:
    """Reads slurm.jwks. Raises WrongKeys."""
    try:
        keys = json.loads(text)["keys"]
        return tuple(Key(key["kid"], _decoded(key["k"]), key.get("use") == "default") for key in keys)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WrongKeys(f"slurm.jwks: {words_of(error)}") from error


def render(keys: Sequence[Key]) -> bytes:
    """Returns slurm.jwks."""
    documents = [
        {"alg": "HS256", "kty": "oct", "kid": key.id, "k": urlsafe_b64encode(key.value).decode()}
        | ({"use": "default"} if key.signs else {})
        for key in keys
    ]
    return f"{json.dumps({'keys': documents}, indent=2)}\n".encode()


def stage(keys: Sequence[Key]) -> Stage:
    """Returns the next step: a new key stands after the one that signs, an old key before it."""
    if len(keys) == 1:
        return Stage.ADD
    return Stage.DROP if keys[-1].signs else Stage.USE


def rotated(keys: Sequence[Key], new: Key) -> Keys:
    """Returns the keys after their next step. `new` is the key that ADD adds."""
    match stage(keys):
        case Stage.ADD:
            return (*(replace(key, signs=True) for key in keys), replace(new, signs=False))
        case Stage.USE:
            return (*(replace(key, signs=False) for key in keys[:-1]), replace(keys[-1], signs=True))
        case Stage.DROP:
            return (keys[-1],)


def signing(keys: Sequence[Key]) -> Key:
    """Returns the key that signs: the one that says so, else the first."""
    return next((key for key in keys if key.signs), keys[0])


def known(files: Mapping[str, bytes]) -> frozenset[bytes]:
    """Returns a daemon's keys: of slurm.jwks, else slurm.key (auth/slurm, init_internal)."""
    if SLURM_JWKS in files:
        try:
            return frozenset(key.value for key in parse(files[SLURM_JWKS]))
        except WrongKeys:
            return frozenset()
    return frozenset({files[SLURM_KEY]} if SLURM_KEY in files else ())


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
