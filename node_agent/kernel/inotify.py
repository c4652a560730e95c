"""Watches folders with inotify(7), for an event loop. Reports new and removed folders, and written
files."""

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

_BUFFER: Final = 1 << 16
_CREATED, _DELETED, _MOVED, _WRITTEN = 0x100, 0x200, 0xC0, 0x2
_IS_FOLDER, _LOST = 0x40000000, 0x4000
_ONLY_FOLDERS: Final = 0x01000000  # IN_ONLYDIR
_EVENT: Final = struct.Struct("=iIII")
"""struct inotify_event: watch, kind of event, cookie, and length of the following name."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


class FolderWatch:
    """Calls `changed` soon after a change: a new or removed folder in a watched folder, or a write to a
    file with a given name. The caller must look for the change, because the kernel reports no details if
    too many events come at once."""

    def __init__(self, changed: Callable[[], object], files: Collection[str]) -> None:
        """Parameter `files` has the names of the files whose writes count. Raises OSError."""
        self._changed = changed
        self._files = {os.fsencode(name) for name in files}
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), f"inotify: {os.strerror(ctypes.get_errno())}")
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def add(self, folder: Path) -> None:
        """Starts to watch a folder. A second call for the same folder changes nothing. Raises
        OSError."""
        mask = _CREATED | _DELETED | _MOVED | _WRITTEN | _ONLY_FOLDERS
        if _libc.inotify_add_watch(self._fd, os.fsencode(folder), mask) < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"inotify: {os.strerror(number)}", str(folder))

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)

    def _read(self) -> None:
        matters = False
        try:
            while data := os.read(self._fd, _BUFFER):
                matters |= any(self._matters(what, name) for what, name in _events(data))
        except BlockingIOError:
            if matters:
                self._changed()

    def _matters(self, what: int, name: bytes) -> bool:
        """Returns True if an event counts as a change. Ignores other files, because the kernel writes
        memory.events each time that a Pod reaches its limit."""
        if what & _WRITTEN:
            return name in self._files
        return bool(what & (_IS_FOLDER | _LOST))


def _events(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the kind and the file name of each event."""
    at = 0
    while at < len(data):
        _, what, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size + length
        yield what, data[at - length : at].rstrip(b"\0")
