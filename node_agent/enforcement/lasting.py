"""Keeps only lasting findings of repeated checks. While a Node changes, a check can find a wrong state
for a moment."""

import time
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

_SETTLES_S: Final = 5.0
"""Time after which a finding counts as lasting. Slurm writes a job's limits shortly after making the
job's cgroup. The agent writes a Pod's new cores shortly after a new grant. Both usually take
milliseconds."""
Finding = TypeVar("Finding")


class Lasting(Generic[Finding]):
    """Remembers the time since which all checks have had a finding."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[Finding, float] = {}

    def of(self, seen: Iterable[Finding]) -> list[Finding]:
        """Returns the findings of this check that all checks in the last 5 s also had."""
        now = self._clock()
        self._since = {each: self._since.get(each, now) for each in seen}
        return [each for each, since in self._since.items() if now - since >= _SETTLES_S]
