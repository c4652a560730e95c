"""Things in the order of their keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.turns.ranking import Ranking

_CHANGES = st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 5)), max_size=300)


@given(_CHANGES)
def test_the_first_is_the_one_with_the_smallest_key(changes: list[tuple[int, int | None]]) -> None:
    """A change gives a thing a key, or (None) takes it out."""
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


def test_of_equal_keys_the_first_to_have_it_comes_first() -> None:
    ranking: Ranking[str, int] = Ranking()
    for thing in "cab":
        ranking.put(thing, 1)
    assert ranking.first() == (1, "c")
    ranking.drop("c")
    assert ranking.first() == (1, "a")


def test_what_is_out_of_date_does_not_pile_up() -> None:
    ranking: Ranking[str, int] = Ranking()
    ranking.put("first", 0)
    for key in range(1, 10_000):
        ranking.put("changes", key)
        ranking.put("leaves", key)
        ranking.drop("leaves")
    assert len(ranking._heap) < 100
