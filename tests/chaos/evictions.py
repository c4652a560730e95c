"""Measures the time from Slurm's signal to the deletion of the Pod, while nothing fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil

from tests.chaos.checker import Eviction
from tests.chaos.quiet_periods import QuietPeriods
from tests.chaos.signals import Signal

CALM_FOR_S = 10.0
"""Quiet seconds before the signal. At the start of a quiet period, a new leader may still read earlier
changes."""
CALM_AFTER_S = 5.0
"""Seconds after the signal that must be quiet. A disturbance after this time does not excuse a slow
eviction."""
NEVER_S = 60.0
"""Assumed duration of an eviction if the Pod was never deleted, in seconds."""
ENDS_WITHIN_S = 1.0
"""A Pod that ends by itself within these seconds needs no eviction."""


@dataclass(frozen=True, slots=True)
class Measured:
    signal: Signal
    pod: str
    took_s: float


def measured(
    signals: Iterable[Signal], eviction: Callable[[int], Eviction | None], quiet: QuietPeriods
) -> Iterator[Measured]:
    """Yields the eviction of each bound Pod whose job Slurm ended. All times are times of `quiet`'s
    clock."""
    heard: set[int] = set()
    for signal in sorted(signals, key=lambda each: each.at):
        if signal.job_id in heard or (found := eviction(signal.job_id)) is None:
            continue
        heard.add(signal.job_id)
        gone = min(found.deleted_at, signal.at if found.at is None else found.at) < signal.at
        if found.bound_at > signal.at or gone:
            continue
        took = NEVER_S if found.at is None else found.at - signal.at
        if found.ended_at < signal.at + min(took, ENDS_WITHIN_S):
            continue
        if quiet.covers(signal.at - CALM_FOR_S, signal.at + min(took, CALM_AFTER_S)):
            yield Measured(signal, found.pod, took)


def percentile(values: Iterable[float], share: float) -> float | None:
    """Returns the smallest value not exceeded by this share of all values; None without values."""
    ordered = sorted(values)
    return ordered[ceil(share * len(ordered)) - 1] if ordered else None
