"""Tests of the places in Slurm's queue."""

from __future__ import annotations

from extender.turns.places import Places


def test_waiting_users_are_ranked_by_their_present_places() -> None:
    places: Places[str] = Places(20)
    for user, taken in {7: 3, 8: 2, 9: 5}.items():
        places.take(user, taken)
    places.wait(7, "first", (0, 1))
    places.wait(8, "second", (0, 2))
    assert places.admitted() is None
    places.take(7, -3)
    assert places.admitted() == ((0, 1), "first")
