"""A server on a UNIX socket, for programs of the same user on the same machine."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.http.listener import ProgramServer


class LocalServer(ProgramServer):
    """The server of an application on a UNIX socket."""

    def __init__(self, application: Callable[..., Any], path: Path) -> None:
        """Raises OSError if the socket cannot be created."""
        self._socket = _bound(path)
        super().__init__(application)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves on the socket, and on `sockets`."""
        await super().serve([self._socket, *(sockets or ())])


def _bound(path: Path) -> socket.socket:
    """Returns a socket for this user only. uvicorn's own sockets would admit all users for a moment."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
    finally:
        os.umask(before)
    return made
