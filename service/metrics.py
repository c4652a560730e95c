"""The parts that the metrics of any program are made of."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.health import Health

SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
# Finer up to 10 ms: a budget of 5 ms is to be told from half of it, and from twice as much.
FAST = (
    *(0.00025, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01),
    *(0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
Family = TypeVar("Family", Counter, Histogram)


@lru_cache(maxsize=256)
def child(family: Family, *labels: str) -> Family:
    """Returns a metric's child. `labels()` makes its texts anew, some twenty times for every Pod."""
    return family.labels(*labels)


class Troubles(Collector):
    """The metric that tells which components are in trouble."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "slurm_extender_component_degraded",
            "Whether a component is in trouble; the log says why.",
            labels=["component"],
        )
        for component, degraded in self._health.parts().items():
            family.add_metric([component], degraded)
        yield family


def application(registry: CollectorRegistry) -> Starlette:
    """Returns what Prometheus reads."""

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/metrics", metrics)])
