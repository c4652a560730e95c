"""How long after Slurm's word a Pod is told to leave, while nothing fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil

from tests.chaos.checker import Eviction
from tests.chaos.quiet_periods import QuietPeriods
from tests.chaos.signals import Signal

CALM_FOR_S = 10.0
"""Before the word: until then a leader may still be finding out what was before it."""
CALM_AFTER_S = 5.0
"""After it: what takes longer counts, whatever happens then."""
NEVER_S = 60.0
"""What an eviction counts as that was not seen."""
ENDS_WITHIN_S = 1.0
"""A Pod that has ended by itself so soon needed nobody to tell it."""


@dataclass(frozen=True, slots=True)
class Measured:
    signal: Signal
    pod: str
    took_s: float


def measured(
    signals: Iterable[Signal], eviction: Callable[[int], Eviction | None], quiet: QuietPeriods
) -> Iterator[Measured]:
    """Yields each bound Pod whose job Slurm ended, by the clock of `quiet`."""
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
    """The least value that this share of all does not exceed; None of nothing."""
    ordered = sorted(values)
    return ordered[ceil(share * len(ordered)) - 1] if ordered else None
