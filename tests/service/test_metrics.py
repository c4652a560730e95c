"""Tests of a program's page of metrics."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from service import cooperative
from service.metrics import application
from tests.clock import Clock
from tests.service.turns import turns_of_others

METRICS = 5


class Slow(Collector):
    """A collector of metrics that takes 30 ms for each metric, by a clock of the test."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for number in range(METRICS):
            self._clock.now += 0.03
            yield GaugeMetricFamily(f"slow_{number}", "Slow.", number)


@pytest.mark.parametrize(("turn_s", "turns"), [(1.0, 0), (0.002, METRICS)])
async def test_page_yields_to_other_tasks_after_each_slow_metric(
    turn_s: float, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, clock = CollectorRegistry(), Clock(0.0)
    monkeypatch.setattr(cooperative, "perf_counter", clock)
    monkeypatch.setattr(cooperative, "_TURN_S", turn_s)
    pages = list[bytes]()

    async def read(registry: CollectorRegistry) -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application(registry))) as client:
            pages.append((await client.get("http://extender/metrics")).content)

    registry.register(Slow(clock))
    assert await turns_of_others(read(registry)) == turns
    assert pages == [generate_latest(registry)]


async def test_concurrent_scrapes_are_read_one_after_the_other() -> None:
    reading = most = 0

    async def before() -> None:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0)
        reading -= 1

    transport = httpx.ASGITransport(application(CollectorRegistry(), before))
    async with httpx.AsyncClient(transport=transport) as client:
        await asyncio.gather(*(client.get("http://extender/metrics") for _ in range(5)))
    assert most == 1
