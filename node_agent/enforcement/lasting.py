"""Findings of repeated looks that last: a Node in motion looks wrong for moments."""

import time
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

_SETTLES_S: Final = 5.0
"""Time from a job's cgroup to the job's limits, or from a Pod's next cores to the cgroup's: usually
milliseconds."""
Finding = TypeVar("Finding")


class Lasting(Generic[Finding]):
    """Remembers since when each finding is seen."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[Finding, float] = {}

    def of(self, seen: Iterable[Finding]) -> list[Finding]:
        """Returns the findings of this look that all looks for 5 s have had."""
        now = self._clock()
        self._since = {each: self._since.get(each, now) for each in seen}
        return [each for each, since in self._since.items() if now - since >= _SETTLES_S]
