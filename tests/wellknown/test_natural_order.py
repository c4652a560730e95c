"""Tests of the natural order of names."""

from wellknown.natural_order import natural_key


def test_numbers_in_names_are_sorted_as_numbers() -> None:
    names = ["rack-1-node-10", "rack-1-node-9", "rack-10", "rack-9", "spare"]
    expected = ["rack-1-node-9", "rack-1-node-10", "rack-9", "rack-10", "spare"]
    assert sorted(names, key=natural_key) == expected
