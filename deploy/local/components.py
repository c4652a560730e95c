"""The programs of a cluster: how each is started, and how one sees that it serves."""

import os
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from deploy.local.layout import CHECKOUT

# What a component gets of the environment, when it is not our own code, which needs more. GOGC (400, for
# instance) spares the Kubernetes programs a quarter of their CPU, for more memory.
PLAIN_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"} | {
    name: os.environ[name] for name in ("GOGC",) if name in os.environ
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One program. `is_ready` is asked again and again after its start, until it says yes."""

    name: str
    argv: tuple[str, ...]
    is_ready: Callable[[], bool]
    env: Mapping[str, str] = field(default_factory=lambda: PLAIN_ENVIRONMENT)
    cwd: Path = CHECKOUT
    ready_within_s: float = 60.0
    starts: int = 1
    """How often it is started, where it ends before it serves."""


def accepts_connections(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def accepts_at(path: Path) -> bool:
    """The same of a UNIX socket."""
    with closing(socket.socket(socket.AF_UNIX)) as probe:
        return probe.connect_ex(str(path)) == 0


def answers(
    url: str, headers: Mapping[str, str] | None = None, shown: tuple[Path, Path] | None = None
) -> bool:
    """Returns whether a GET is answered with 200. `shown` is our own certificate, and its key."""
    if not accepts_connections(urlsplit(url).port or 0):  # the usual answer, at a hundredth of the CPU
        return False
    trust = _any_certificate()
    if shown is not None:
        trust.load_cert_chain(*shown)
    with httpx.Client(verify=trust, trust_env=False, timeout=2.0) as client:
        try:
            answer = client.get(url, headers=headers)
        except httpx.HTTPError:
            return False
    return answer.status_code == httpx.codes.OK


def _any_certificate() -> ssl.SSLContext:
    """Kubernetes components make their own; this is only ever asked how they are."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
