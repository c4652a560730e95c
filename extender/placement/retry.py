"""When a placeholder's next effect is due."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

REPEATEDLY = 5  # within some three seconds: once, it may have crossed with something else


class Waits(Enum):
    """What a placeholder's next effect waits for."""

    FOR_TIME = auto()
    """`Retry.not_before`; mostly that is past."""
    FOR_TURN = auto()
    """A submission that Slurm refuses for now waits for another turn (`SubmitQueue`)."""
    FOR_LIMITER = auto()
    """The eviction limiter does not let it pass yet (`EvictionLimiter`)."""


class Retry(NamedTuple):
    """Whether an effect is under way, how the last ones went, and when the next one may be tried."""

    in_flight: bool = False
    """An effect that moves the placeholder on is under way."""
    failures: int = 0
    """How many times in a row its effects failed."""
    waits: Waits = Waits.FOR_TIME
    not_before: float = 0.0
    """When the next effect may be tried."""

    def is_due(self, now: float) -> bool:
        """Tells whether the next effect may be tried now."""
        return not self.in_flight and self.waits is Waits.FOR_TIME and now >= self.not_before
