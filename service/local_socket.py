"""A server on a UNIX socket: for programs of the same machine, of the same user."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn


class LocalServer(uvicorn.Server):
    """uvicorn's server of an application on a UNIX socket. Signals are the program's to handle."""

    def __init__(self, application: Callable[..., Any], socket: Path) -> None:
        """Raises OSError where there can be no such socket."""
        socket.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        self._socket = socket
        super().__init__(
            uvicorn.Config(
                application,
                uds=str(socket),
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

    async def startup(self, sockets: list[Any] | None = None) -> None:
        before = os.umask(0o177)
        try:
            await super().startup(sockets)
        finally:
            os.umask(before)
        self._socket.chmod(0o600)  # uvicorn lets everybody in
