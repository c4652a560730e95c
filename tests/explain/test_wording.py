"""Tests of the functions that shorten a text to a limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.explain.wording import cut, fitted


@pytest.mark.parametrize(
    ("most", "words"), [(9, "It waits."), (8, "It wa..."), (4, "I..."), (3, ""), (-1, "")]
)
def test_long_text_is_cut_at_its_end(most: int, words: str) -> None:
    assert cut("It waits.", most) == words


@pytest.mark.parametrize(
    ("most", "words"),
    [
        (24, "sentence, aside, outlook"),
        (22, "sentence, ..., outlook"),
        (18, "sentence, outlook"),
        (14, "sentence, o..."),
        (6, "sen..."),
    ],
)
def test_least_important_part_is_cut_first(most: int, words: str) -> None:
    assert fitted(("sentence", ", aside", ", outlook"), (1, 2), most) == words


@given(st.lists(st.text(max_size=30), min_size=3, max_size=3), st.integers(0, 60))
def test_text_fits_the_limit_and_is_cut_only_if_necessary(parts: list[str], most: int) -> None:
    told = fitted(parts, (2, 1), most)
    assert len(told) <= most
    if len("".join(parts)) <= most:
        assert told == "".join(parts)
    elif len(parts[0]) + len(parts[1]) <= most:
        assert told.startswith(parts[0] + parts[1])
