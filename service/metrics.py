"""Parts of the metrics of all programs."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, TypeVar

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Samples
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.cooperative import OneByOne, yielding
from service.health import Health

SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
# These buckets are finer up to 10 ms, to show half of a budget of 5 ms and twice the budget.
FAST = (
    *(0.00025, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01),
    *(0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
Family = TypeVar("Family", Counter, Histogram)
Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, and its row in docs/reference/metrics.md."""

    name: str
    """Prometheus' name; a counter's ends in _total."""
    kind: Kind
    words: str
    """Prometheus' HELP."""
    question: str
    """The question that the metric answers for an administrator."""
    labels: tuple[str, ...] = ()

    def counter(self, registry: CollectorRegistry) -> Counter:
        """Returns a counter for the program to increase."""
        return Counter(self.name.removesuffix("_total"), self.words, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """Returns a gauge for the program to set."""
        return Gauge(self.name, self.words, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry, buckets: tuple[float, ...] = SECONDS) -> Histogram:
        """Returns a histogram for the program's observations."""
        return Histogram(self.name, self.words, self.labels, buckets=buckets, registry=registry)

    def read(self) -> GaugeMetricFamily:
        """Returns a gauge for a single scrape, still without a value."""
        return GaugeMetricFamily(self.name, self.words, labels=self.labels)

    def with_value(self, value: float | None) -> GaugeMetricFamily:
        """Returns a gauge for a single scrape, with this value. None means no value."""
        family = self.read()
        if value is not None:
            family.add_metric((), value)
        return family

    def read_counter(self, value: float | None) -> CounterMetricFamily:
        """Returns a counter for a single scrape. The value is a count that the program keeps elsewhere.
        None means no value."""
        family = CounterMetricFamily(self.name.removesuffix("_total"), self.words, labels=self.labels)
        if value is not None:
            family.add_metric((), value)
        return family


@lru_cache(maxsize=256)
def child(family: Family, *labels: str) -> Family:
    """Returns the child of a metric for these labels. The cache avoids about twenty conversions by
    `labels()` for every Pod."""
    return family.labels(*labels)


def installed_version(distribution: str) -> str:
    """Returns the version of an installed distribution; "unknown" without an installation."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


class Problems(Collector):
    """The metric of components with problems."""

    def __init__(self, health: Health, metric: Metric) -> None:
        self._health = health
        self._metric = metric

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = self._metric.read()
        for component, degraded in self._health.parts().items():
            family.add_metric([component], degraded)
        yield family


class _One(Collector):
    """A single metric."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Samples]:
        yield self._samples


async def _nothing() -> None:
    pass


def application(
    registry: CollectorRegistry, before: Callable[[], Awaitable[None]] = _nothing
) -> Starlette:
    """Returns the application for Prometheus. The application calls `before` before each scrape, and
    answers one scrape at a time. So even very many scrapes at the same time leave the event loop free
    for other work."""
    in_turn = OneByOne()

    async def page() -> bytes:
        """Gives other work turns between two metrics, because a metric may count 5,000 nodes."""
        await before()
        return b"".join([generate_latest(_One(each)) async for each in yielding(registry.collect())])

    async def metrics(_: Request) -> Response:
        return Response(await in_turn.does(page), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/metrics", metrics)])
