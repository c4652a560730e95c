"""Tests of the probe that records delays of a busy event loop."""

import asyncio
import time
from pathlib import Path

import pytest

from loadtest.scenarios import scale_probe
from loadtest.scenarios.scale_probe import read_ticks, watch


async def _watched(path: Path, act: object) -> tuple[list[float], list[float]]:
    watching = asyncio.ensure_future(watch(path))
    await asyncio.sleep(0.05)
    await act()  # type: ignore[operator]
    await asyncio.sleep(0.05)
    watching.cancel()
    return read_ticks(path, 0, float("inf"))


@pytest.fixture(autouse=True)
def _short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_probe, "_PAGE_S", 0.01)


async def _works() -> None:
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass


async def _stands_still() -> None:
    time.sleep(0.1)  # noqa: ASYNC251 -- that is the point


async def test_busy_event_loop_is_recorded_as_late_and_held(tmp_path: Path) -> None:
    late, held = await _watched(tmp_path / "ticks", _works)
    assert max(held) > 80
    assert max(late) > 80


async def test_blocking_call_without_cpu_is_late_and_not_held(tmp_path: Path) -> None:
    late, held = await _watched(tmp_path / "ticks", _stands_still)
    assert max(late) > 80
    assert max(held) < 50


def test_reader_takes_a_span_of_time_and_skips_an_incomplete_line(tmp_path: Path) -> None:
    path = tmp_path / "ticks"
    path.write_text("[1.0, [1], [0]]\n[2.0, [2], [1]]\n[3.0, [3], [2]]\n[4.0, [4")
    assert read_ticks(path, 1.5, 9) == ([2, 3], [1, 2])
