"""A server on a UNIX socket: for programs of the same machine, of the same user."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn


class LocalServer(uvicorn.Server):
    """uvicorn's server of an application on a UNIX socket. Signals are the program's to handle."""

    def __init__(self, application: Callable[..., Any], path: Path) -> None:
        """Raises OSError where there can be no such socket."""
        self._socket = _bound(path)
        super().__init__(
            uvicorn.Config(
                application,
                ws="none",
                proxy_headers=False,
                log_config=None,
                log_level="error",
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=5,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        await super().startup([self._socket])


def _bound(path: Path) -> socket.socket:
    """Bound by ourselves: uvicorn lets everybody in, if only for a moment."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
    finally:
        os.umask(before)
    return made
