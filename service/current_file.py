"""Keeps the current content of a file, and reads the file again after a change.

While a changed file is wrong, the last valid content stays in force, and the log and /readyz report
the problem.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from service.health import Health
from service.periodic import periodically
from service.watched_file import Stamp, stamp
from service.yaml_file import WrongFile

_LOOK_S = 1.0

_Content = TypeVar("_Content")


class CurrentFile(Generic[_Content]):
    """Keeps the content of a file. At each change, the event `changed` is set, and a new event takes its
    place."""

    def __init__(
        self, part: str, file: Path | None, read: Callable[[Path], _Content], absent: _Content
    ) -> None:
        """`part` names the file in the health report. `absent` is the content if there is no file.
        Raises WrongFile."""
        self.content = absent
        self.changed = asyncio.Event()
        self.problem: str | None = None
        """The problem with the current file, or None while the current content is in force."""
        self.file = file
        self.part = part
        self._reads = read
        self._seen: Stamp | None = None
        self._read: Stamp | None = None
        self._wrong: str | None = None
        if file is not None:
            self._read = self._seen = _stamp_of(file)
            self.content = read(file)

    async def run(self, health: Health, tell: Callable[[bool], object]) -> None:
        """Looks at the file without end, if there is a file. Calls `tell` with True for a valid file,
        otherwise with False."""
        self.announce()
        file = self.file
        if file is None:
            return

        def look() -> None:
            self.look(file)
            why = self.problem and f"the last valid content stays in force: {self.problem}"
            health.says(self.part, why, alarm=True)
            tell(self.problem is None)

        await periodically(look, _LOOK_S, pauses_first=True)

    def look(self, file: Path) -> None:
        """Reads a changed file only after two looks without a difference, because a file may also be
        valid while another program has written only half of the file."""
        now = _stamp_of(file)
        if now is not None and now != self._read and now == self._seen:
            self._read = now
            self._take(file)
        self._seen = now
        self.problem = self._wrong if now is not None else f"{file} no longer exists"

    def announce(self) -> None:
        """Logs the content in force."""

    def _take(self, file: Path) -> None:
        try:
            content = self._reads(file)
        except WrongFile as wrong:
            self._wrong = str(wrong)
            return
        self._wrong = None
        if content != self.content:
            self.content = content
            self.announce()
            changed, self.changed = self.changed, asyncio.Event()
            changed.set()


def _stamp_of(file: Path) -> Stamp | None:
    try:
        return stamp(file)
    except OSError:
        return None
