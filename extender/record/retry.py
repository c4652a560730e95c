"""The time of a placeholder's next effect, and the event for which the effect waits."""

from enum import Enum, auto
from math import inf
from typing import NamedTuple

from extender.record.events import Failure


class Waits(Enum):
    """The event for which a placeholder's next effect waits."""

    FOR_TIME = auto()
    """The effect waits until `Retry.not_before`. In most cases this time is past, so the effect is
    due."""
    FOR_TURN = auto()
    """Slurm has rejected the submission for now. The submission waits for another turn (`Windows`)."""
    FOR_LIMITER = auto()
    """The eviction limiter delays the effect (`EvictionLimiter`)."""


class Retry(NamedTuple):
    """Progress of effects: the effect under way, past failures, and the time of the next try."""

    in_flight: bool = False
    """True while an effect on the job is under way. For effects on Pods, see the members (`Write`)."""
    failures: int = 0
    """Number of failed effects in a row."""
    waits: Waits = Waits.FOR_TIME
    not_before: float = 0.0
    """Time before which the next effect is not tried. In SEEN, also the time before which the extender
    reports no missing Pods of a gang (`on_pod.joined`)."""
    unbound_by: float = inf
    """Time at which the extender gives back an unbound allocation."""
    denied: Failure | None = None
    """Last failed submission for which Slurm gave no cause. Slurm may not have created the job
    (`Mistrust.denials`)."""
    asked_why: float | None = None
    """Time at which the current read of the waiting reason began; None without such a read. No other
    effect waits for this read."""

    @property
    def due(self) -> float:
        """Returns the time of the next try. Returns infinity while an effect is under way, or while the
        next effect waits for a turn or for the limiter."""
        return inf if self.in_flight or self.waits is not Waits.FOR_TIME else self.not_before
