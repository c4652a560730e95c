"""Tests of the pauses between the tries of equal requests."""

from __future__ import annotations

from extender.turns.backoff import Backoff
from wellknown.pauses import Pauses


def test_pause_can_be_shortened_and_not_prolonged() -> None:
    backoff = Backoff(Pauses(1.0, 15.0))
    backoff.pause(10.0)
    assert not backoff.hasten(12.0)
    assert backoff.due == 11.0
    assert backoff.hasten(10.5)
    assert backoff.due == 10.5
