"""Tests of lists of numbers in the format that the Linux kernel uses, such as 0-3,8."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellknown import number_list

NUMBERS = st.sets(st.integers(0, number_list.MOST - 1), max_size=50)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("", ()), ("7", (7,)), ("0-3", (0, 1, 2, 3)), ("0-1,8", (0, 1, 8)), ("8,0-1,1", (0, 1, 8))],
)
def test_list_expands_to_its_numbers_in_order(text: str, numbers: tuple[int, ...]) -> None:
    assert number_list.expand(text) == numbers


@given(NUMBERS)
def test_numbers_are_read_back_from_their_list(numbers: set[int]) -> None:
    assert set(number_list.expand(number_list.compress(numbers))) == numbers


def test_consecutive_numbers_are_one_range() -> None:
    assert number_list.compress([9, 2, 0, 1, 4, 4]) == "0-2,4,9"


@pytest.mark.parametrize(
    "text", [",", "0,", "-1", "3-1", "0x1", "1 ", "٣", "0-1-2", "0-8192", "999999", "0-5000,6000-9500"]
)
def test_malformed_or_too_long_list_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"no number|ends before|more than"):
        number_list.expand(text)


@given(st.text(alphabet="0123456789,- x", max_size=40))
def test_any_text_is_a_list_or_an_error(text: str) -> None:
    try:
        numbers = number_list.expand(text)
    except ValueError:
        return
    assert len(numbers) <= number_list.MOST
