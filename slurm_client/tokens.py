"""Reads the JWT for slurmrestd, and makes messages about a rejected token. Only slurmctld checks the
signature."""

import base64
import binascii
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from service.watched_file import Stamp, stamp
from slurm_client.errors import BadToken

_VARIABLE: Final = "SLURM_JWT="


class TokenSource(Protocol):
    """A source of tokens."""

    def token(self) -> str:
        """Returns the token to send now. Raises BadToken if there is no token."""

    def refresh(self, rejected: str) -> bool:
        """Looks for a new token at once. Returns True if the token differs from the rejected token."""

    def describe(self) -> str:
        """Returns a text about the token for an error message: the origin of the token, and its problem,
        for example the time since its expiry."""


class StaticToken:
    """A token given as a text, for tests and tools."""

    def __init__(self, token: str, clock: Callable[[], float] = time.time) -> None:
        self._token = token.strip()
        self._clock = clock

    def token(self) -> str:
        return self._token

    def refresh(self, rejected: str) -> bool:
        return self._token != rejected

    def describe(self) -> str:
        return _describe("the token", self._token, self._clock())


class TokenFile:
    """A token in a file. The file is read again after a change (by rename or in place), and after Slurm
    has rejected the token.

    `clock` returns UNIX seconds, for messages. For `look_every_s` after a look at the file, the token is
    used without another look. `ticks` measures this time, in seconds that only go forward.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        *,
        look_every_s: float = 0.0,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._clock = clock
        self._look_every_s = look_every_s
        self._ticks = ticks
        self._good_until = float("-inf")
        self._stamp: Stamp | None = None
        self._token = ""

    def token(self) -> str:
        if self._ticks() < self._good_until:
            return self._token
        try:
            if self._stamp != stamp(self._path):
                self._read()
        except OSError as error:
            cause = error.strerror or error
            raise BadToken(f"the token file {self._path} cannot be read: {cause}") from error
        if not self._token:
            raise BadToken(f"the token file {self._path} is empty")
        self._good_until = self._ticks() + self._look_every_s
        return self._token

    def refresh(self, rejected: str) -> bool:
        self._good_until, self._stamp = float("-inf"), None
        return self.token() != rejected

    def describe(self) -> str:
        return _describe(f"the token in {self._path}", self._token, self._clock())

    def lifetime(self) -> tuple[float | None, float | None]:
        """Returns the token's times of issue and expiry in UNIX seconds. Each time is None if
        unknown."""
        try:
            return lifetime(self.token())
        except BadToken:
            return None, None

    def _read(self) -> None:
        # The file's stamp is read before the file's text. If the file changes between the two reads, the
        # next call sees another stamp, and reads the text again.
        self._stamp = stamp(self._path)
        self._token = self._path.read_text(encoding="ascii", errors="replace").strip()


def problem(token: str) -> str:
    """Returns the problem with the form of a token, as the end of a sentence. Returns "" if the token is
    a JWT."""
    if token.startswith(_VARIABLE):
        return f"is not a JWT: leave out {_VARIABLE}, which `scontrol token` prints before the JWT"
    return "" if _claims(token) else "is not a JWT"


def expiry(token: str) -> float | None:
    """Returns the `exp` claim (RFC 7519 4.1.4) in UNIX seconds; None if there is none."""
    return lifetime(token)[1]


def lifetime(token: str) -> tuple[float | None, float | None]:
    """Returns the `iat` and `exp` claims (RFC 7519 4.1.6 and 4.1.4) in UNIX seconds, with None for a
    missing claim."""
    claims = (_claims(token).get(name) for name in ("iat", "exp"))
    issued, ends = (float(claim) if isinstance(claim, int | float) else None for claim in claims)
    return issued, ends


@lru_cache(maxsize=4)
def user(token: str) -> str | None:
    """Returns the `sun` claim: the Slurm user of the token."""
    value = _claims(token).get("sun")
    return value if isinstance(value, str) else None


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _describe(which: str, token: str, now: float) -> str:
    if wrong := problem(token):
        return f"{which} {wrong}"
    expires = expiry(token)
    if expires is not None and expires <= now:
        return f"{which} expired {_ago(now - expires)} ago"
    return f"{which} (user {user(token) or 'unknown'}) is not expired: is it signed with Slurm's key?"


def _ago(seconds: float) -> str:
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return f"{int(seconds)} seconds"
