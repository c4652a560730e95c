"""Tests of long work on the event loop that lets other tasks run in between."""

import asyncio
from itertools import pairwise
from time import perf_counter

import pytest

from service import cooperative
from service.cooperative import OneByOne, yielding
from tests.clock import Clock
from tests.service.turns import turns_of_others

ITEMS = 100


async def _all(each_ms: float, clock: Clock, seen: list[int]) -> None:
    async for item in yielding(range(ITEMS)):
        clock.now += each_ms / 1000
        seen.append(item)


@pytest.mark.parametrize(("each_ms", "given"), [(5.0, 100), (1.01, 50), (0.21, 10), (0.001, 0)])
async def test_long_work_yields_to_other_tasks_every_two_milliseconds(
    each_ms: float, given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, seen = Clock(0.0), list[int]()
    monkeypatch.setattr(cooperative, "perf_counter", clock)
    assert abs(await turns_of_others(_all(each_ms, clock, seen)) - given) <= 2
    assert seen == [*range(ITEMS)]


async def test_pieces_run_one_by_one_with_a_pause_as_long_as_each_piece() -> None:
    one_by_one, done = OneByOne(), list[tuple[int, float, float]]()

    async def work(number: int) -> None:
        began = perf_counter()
        while perf_counter() < began + 0.01 * (1 + number % 2):
            pass
        done.append((number, began, perf_counter()))

    await asyncio.gather(*(one_by_one.does(lambda n=n: work(n)) for n in range(5)))  # type: ignore[misc]
    assert [number for number, *_ in done] == [*range(5)]
    for (_, began, ended), (_, next_began, _) in pairwise(done):
        assert next_began - ended > ended - began - 0.001


async def _seven() -> int:
    return 7


async def test_first_piece_does_not_wait() -> None:
    async with asyncio.timeout(1):
        assert await OneByOne().does(_seven) == 7


async def test_a_defect_in_one_piece_does_not_stop_the_next() -> None:
    one_by_one = OneByOne()

    async def defect() -> None:
        raise RuntimeError

    told = await asyncio.gather(one_by_one.does(defect), one_by_one.does(_seven), return_exceptions=True)
    assert isinstance(told[0], RuntimeError)
    assert told[1] == 7
