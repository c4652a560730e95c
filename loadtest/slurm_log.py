"""When Slurm started its jobs, as slurmctld's log has it: slurmrestd tells whole seconds only."""

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

# An allocation at once; one by the main scheduler; one by the backfill scheduler of 24.11: that of 26.05
# says nothing where it starts a job.
_STARTED: Final = re.compile(
    r"\[(?P<at>[\d:.T-]+)\] (?:"
    r"sched: _slurm_rpc_allocate_resources JobId=(?P<rpc>\d+) NodeList=(?!\(null\))"
    r"|sched: Allocate JobId=(?P<main>\d+) NodeList="
    r"|sched/backfill: _start_job: Started JobId=(?P<backfill>\d+) in )"
)


class SlurmLog:
    """slurmctld's log as it grows; LogTimeFormat=iso8601_ms,format_stderr in slurm.conf."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def starts(self) -> Mapping[int, float]:
        """Logged since the last call: job id -> `time.time()` of its start, to a millisecond."""
        with self._path.open() as log:
            log.seek(self._read)
            told = log.read()
            self._read = log.tell()
        return starts(told)


def starts(log: str) -> Mapping[int, float]:
    """As `SlurmLog.starts`, of the lines given."""
    return {
        int(found["rpc"] or found["main"] or found["backfill"]): datetime.fromisoformat(
            found["at"]
        ).timestamp()
        for found in _STARTED.finditer(log)
    }
