"""Tests of `Ranking`, a collection of items in the order of their keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.turns.ranking import Ranking

_CHANGES = st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 5)), max_size=300)


@given(_CHANGES)
def test_first_returns_the_smallest_key(changes: list[tuple[int, int | None]]) -> None:
    """Each change gives a thing a key. The key None removes the thing."""
    ranking: Ranking[int, int] = Ranking()
    keys: dict[int, int] = {}
    for thing, key in changes:
        keys.pop(thing, None)
        if key is None:
            ranking.drop(thing)
        else:
            ranking.put(thing, key)
            keys[thing] = key
        first = ranking.first()
        assert (first[0] if first else None) == min(keys.values(), default=None)
        assert first is None or keys[first[1]] == first[0]
        assert len(ranking) == len(keys)
        assert (thing in ranking) is (thing in keys)


def test_equal_keys_keep_the_order_of_insertion() -> None:
    ranking: Ranking[str, int] = Ranking()
    for thing in "cab":
        ranking.put(thing, 1)
    assert ranking.first() == (1, "c")
    ranking.drop("c")
    assert ranking.first() == (1, "a")


def test_outdated_entries_do_not_accumulate() -> None:
    ranking: Ranking[str, int] = Ranking()
    ranking.put("first", 0)
    for key in range(1, 10_000):
        ranking.put("changes", key)
        ranking.put("leaves", key)
        ranking.drop("leaves")
    assert len(ranking._heap) < 100
