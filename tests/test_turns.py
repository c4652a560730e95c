"""Long loops that give way."""

from __future__ import annotations

import pytest

from extender import turns
from extender.turns import by_turns
from tests.turns import turns_of_others

ITEMS = 100


class Clock:
    """Moves on only where the work takes time."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms / 1000


async def _all(each_ms: float, clock: Clock, seen: list[int]) -> None:
    async for item in by_turns(range(ITEMS)):
        clock.now_ms += each_ms
        seen.append(item)


@pytest.mark.parametrize(("each_ms", "given"), [(5.0, 100), (1.01, 50), (0.21, 10), (0.001, 0)])
async def test_others_get_a_turn_every_two_milliseconds(
    each_ms: float, given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, seen = Clock(), list[int]()
    monkeypatch.setattr(turns, "perf_counter", clock)
    assert abs(await turns_of_others(_all(each_ms, clock, seen)) - given) <= 2
    assert seen == [*range(ITEMS)]
