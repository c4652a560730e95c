"""Describes the programs of a cluster: how each program is started, and how its readiness is checked."""

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

# Environment of components from other projects. If GOGC is set (for example to 400), the Kubernetes
# programs need a quarter less CPU time, and more memory.
PLAIN_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"} | {
    name: os.environ[name] for name in ("GOGC",) if name in os.environ
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One program. After the start, `is_ready` is called repeatedly until it returns True."""

    name: str
    argv: tuple[str, ...]
    is_ready: Callable[[], bool]
    env: Mapping[str, str] = field(default_factory=lambda: PLAIN_ENVIRONMENT)
    cwd: Path = CHECKOUT
    ready_within_s: float = 60.0
    starts: int = 1
    """Maximum number of starts, if the program ends before serving."""


def accepts_connections(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def accepts_at(path: Path) -> bool:
    """Returns whether a UNIX socket accepts connections."""
    with closing(socket.socket(socket.AF_UNIX)) as probe:
        return probe.connect_ex(str(path)) == 0


def answers(
    url: str, headers: Mapping[str, str] | None = None, shown: tuple[Path, Path] | None = None
) -> bool:
    """Returns whether a GET is answered with 200. `shown` has the paths of a client certificate and its
    key."""
    # Until the program listens, this check of the port is enough. The check costs a hundredth of the CPU
    # time of a GET.
    if not accepts_connections(urlsplit(url).port or 0):
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
    """Returns a context that accepts any certificate, because Kubernetes components sign their own
    certificates. Only the checks of readiness use this context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
