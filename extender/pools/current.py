"""The current pools: the content of a file that is read again whenever it changes."""

from collections.abc import Sequence
from pathlib import Path

import structlog

from extender.pools.file import read
from extender.pools.pool import Pool
from service.current_file import CurrentFile

log = structlog.get_logger()


class CurrentPools(CurrentFile[Sequence[Pool]]):
    """Keeps the current pools: none where there is no file."""

    def __init__(self, file: Path | None) -> None:
        """Raises WrongFile where the file is wrong."""
        super().__init__("pools' file", file, read, ())

    def announce(self) -> None:
        log.info(
            "pools", file=str(self.file or ""), revisions=[p.assignment.revision for p in self.content]
        )
