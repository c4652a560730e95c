"""inotify(7): folders that come and go and files that somebody writes, told to an event loop."""

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

_BUFFER: Final = 1 << 16
_CREATED, _DELETED, _MOVED, _WRITTEN = 0x100, 0x200, 0xC0, 0x2
_ONLY_FOLDERS: Final = 0x01000000  # IN_ONLYDIR
_libc: Final = ctypes.CDLL(None, use_errno=True)


class FolderWatch:
    """Calls `changed` soon after something came into one of the folders, went, or was written. What it
    was is for the caller to see: where too much happens at a time the kernel does not tell."""

    def __init__(self, changed: Callable[[], object]) -> None:
        self._changed = changed
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), f"inotify: {os.strerror(ctypes.get_errno())}")
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def add(self, folder: Path) -> None:
        """Watches a folder, too; one that is watched already is watched once. Raises OSError."""
        mask = _CREATED | _DELETED | _MOVED | _WRITTEN | _ONLY_FOLDERS
        if _libc.inotify_add_watch(self._fd, os.fsencode(folder), mask) < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"inotify: {os.strerror(number)}", str(folder))

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)

    def _read(self) -> None:
        try:
            while os.read(self._fd, _BUFFER):
                pass
        except BlockingIOError:
            self._changed()
