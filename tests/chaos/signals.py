"""Reads the times of cancellations and preemptions from slurmctld's log, exact to the millisecond."""

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
    """A cancellation or preemption of a job. `at` is a time in seconds."""

    at: float
    kind: Kind
    job_id: int


_WORDS = {
    Kind.CANCELLED: re.compile(r"REQUEST_KILL_JOB JobId=(\d+) "),
    Kind.PREEMPTED: re.compile(r"preempted JobId=(\d+) has been killed to reclaim"),
    Kind.GRACE: re.compile(r"preemption grace time for JobId=(\d+) "),
}


def read_signals(log: Iterable[str]) -> Iterator[Signal]:
    """Reads slurmctld's log, written with SlurmctldDebug=debug and LogTimeFormat=iso8601_ms. Times are
    UNIX seconds."""
    for line in log:
        for kind, words in _WORDS.items():
            if found := words.search(line):
                at = datetime.fromisoformat(line[1 : line.index("]")]).timestamp()
                yield Signal(at, kind, int(found[1]))
