"""Tests of the waits in `tests.eventually`: values, limits and messages."""

from __future__ import annotations

import re

import pytest

from tests.eventually import eventually, eventually_not, until


async def number() -> int:
    return 3


async def test_waits_return_the_first_value_that_meets_the_condition() -> None:
    values = iter((0, 1, 2))
    assert eventually(lambda: next(values)) == 1
    assert await until(number, holds=lambda seen: seen == 3) == 3


def test_late_wait_names_the_condition_the_limit_and_the_value() -> None:
    with pytest.raises(AssertionError, match=r"^the queue is empty: not within 0\.01 s, but 3$"):
        eventually_not(lambda: 3, "the queue is empty", 0.01)


async def test_late_wait_without_a_name_shows_its_line() -> None:
    def line(call: str) -> str:
        return "^" + re.escape(f"{call}: not within 0.01 s, but ")

    with pytest.raises(AssertionError, match=line("eventually(lambda: 0, within_s=0.01)") + "0$"):
        eventually(lambda: 0, within_s=0.01)
    with pytest.raises(AssertionError, match=line("await until(lambda: None, within_s=0.01)") + "None$"):
        await until(lambda: None, within_s=0.01)
