"""The current pools: the content of the pools' file, read again after each change."""

from collections.abc import Sequence
from pathlib import Path

import structlog

from extender.pools.file import read
from extender.pools.pool import Pool
from service.current_file import CurrentFile

log = structlog.get_logger()


class CurrentPools(CurrentFile[Sequence[Pool]]):
    """Holds the current pools. Without a file, there are no pools."""

    def __init__(self, file: Path | None) -> None:
        """Raises WrongFile if the file is invalid."""
        super().__init__("pools' file", file, read, ())

    def announce(self) -> None:
        log.info(
            "pools", file=str(self.file or ""), revisions=[p.assignment.revision for p in self.content]
        )
