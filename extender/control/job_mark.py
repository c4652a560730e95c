"""The id from which Slurm's jobs may be ours without a sign of it: a leader keeps it on the Lease, so
that the next one reads no older jobs.

A job that was asked for by its name has an id of Slurm's own choice. Until that is written onto its Pod
nothing else tells where such jobs are. Slurm counts its ids up; a slurmctld that was killed may count
some of them again, and after MaxJobId it begins anew.
"""

from collections import deque
from collections.abc import Callable, Iterable
from math import inf

from slurm_client.server import Configuration

LATE_S = 120.0
"""How long after it was sent a request may still make a job."""
_BETWEEN_S = 1.0
_TOLD_S = 10.0
_JUMPS_BACK = 10_000
"""Answers that cross each other differ by less."""


class JobMark:
    """What one leader knows of it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._boot_time: int | None = None
        self._open: dict[str, float] = {}
        """When the jobs were asked for of which nothing is known yet, by their names."""
        self._heard = deque([(-inf, 0)])
        """What was known of the next id at some times: each job that was asked for later has that one,
        or a higher one."""
        self._text: str | None = None
        self._told_at = -inf

    def begin(self, before: str | None, slurm: Configuration) -> None:
        """Takes up the mark of the leader before; None: it has left none."""
        first, boot_time = _parsed(before)
        same = boot_time is not None and boot_time == slurm.boot_time
        if not same or (slurm.next_job_id is not None and slurm.next_job_id < first):
            first = 0  # it may have counted anew since
        self._boot_time = slurm.boot_time
        self._heard = deque([(-inf, first)])

    def configured(self, slurm: Configuration) -> bool:
        """Takes note of Slurm's settings. Tells whether slurmctld was restarted since the last ones."""
        if slurm.boot_time is None:
            return False
        restarted = self._boot_time not in (None, slurm.boot_time)
        self._boot_time = slurm.boot_time
        if restarted:
            self._begin_anew()
        if slurm.next_job_id is not None:
            self._hear(slurm.next_job_id)
        return restarted

    def asked(self, name: str) -> None:
        """Takes note that a job is being asked for."""
        self._open.setdefault(name, self._clock())

    def answered(self, name: str, job_id: int | None) -> None:
        """Takes note of what became of it; None: there is no job."""
        self._open.pop(name, None)
        if job_id is not None:
            self._hear(job_id + 1)

    def is_open(self, name: str) -> bool:
        """Tells whether a job is being asked for, or it is not known what became of it."""
        return name in self._open

    @property
    def first(self) -> int:
        """Returns the lowest id that a job of ours may have that nobody knows of."""
        since = min(self._clock() - LATE_S, *self._open.values(), inf)
        while len(self._heard) > 1 and self._heard[1][0] <= since:
            self._heard.popleft()
        return self._heard[0][1]

    def text(self, unrecorded: Callable[[], Iterable[int]]) -> str | None:
        """Returns the mark for the next leader, made anew every now and then: an older one costs more
        reading. None where it is not known which slurmctld it is of. `unrecorded` gives the ids of jobs
        that are known, and not on their Pods yet."""
        if self._clock() >= self._told_at + _TOLD_S and self._boot_time is not None:
            self._told_at = self._clock()
            self._text = f"{min([self.first, *unrecorded()])}@{self._boot_time}"
        return self._text

    def _hear(self, next_id: int) -> None:
        now, (at, last) = self._clock(), self._heard[-1]
        if next_id < last - _JUMPS_BACK:
            self._begin_anew()
        elif next_id <= last or now < at + _BETWEEN_S:
            return
        self._heard.append((now, next_id))

    def _begin_anew(self) -> None:
        """What was asked for a moment ago may have any id."""
        self._heard = deque([(-inf, 0)])
        self._told_at = -inf


def _parsed(text: str | None) -> tuple[int, int | None]:
    first, _, boot_time = (text or "").partition("@")
    known = first.isdecimal() and boot_time.isdecimal()
    return (int(first), int(boot_time)) if known else (0, None)
