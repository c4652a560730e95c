"""Long loops that give way."""

from __future__ import annotations

import pytest

from extender.turns import by_turns
from tests.turns import turns_of_others


async def _all(count: int, at_a_time: int, seen: list[int]) -> None:
    seen += [item async for item in by_turns(range(count), at_a_time)]


@pytest.mark.parametrize(("at_a_time", "turns"), [(1, 100), (10, 10), (99, 1), (1000, 0)])
async def test_others_get_a_turn_after_so_many(at_a_time: int, turns: int) -> None:
    seen = list[int]()
    assert abs(await turns_of_others(_all(100, at_a_time, seen)) - turns) <= 2
    assert seen == [*range(100)]
