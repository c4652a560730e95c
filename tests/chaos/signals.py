"""When Slurm was told, or decided, that a job is to go: what its own log says, to the millisecond."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Kind(StrEnum):
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    GRACE = "its GraceTime begins"


@dataclass(frozen=True, slots=True)
class Signal:
    """`at` is by the clock on the wall, as time.time() is."""

    at: float
    kind: Kind
    job_id: int


_WORDS = {
    Kind.CANCELLED: re.compile(r"REQUEST_KILL_JOB JobId=(\d+) "),
    Kind.PREEMPTED: re.compile(r"preempted JobId=(\d+) has been killed to reclaim"),
    Kind.GRACE: re.compile(r"preemption grace time for JobId=(\d+) "),
}


def read_signals(log: Iterable[str]) -> Iterator[Signal]:
    """Reads a slurmctld's log, at level debug and with LogTimeFormat=iso8601_ms."""
    for line in log:
        for kind, words in _WORDS.items():
            if found := words.search(line):
                at = datetime.fromisoformat(line[1 : line.index("]")]).timestamp()
                yield Signal(at, kind, int(found[1]))
