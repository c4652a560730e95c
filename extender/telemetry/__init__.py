"""Logs and metrics of the extender. Telemetry only observes: no decision depends on telemetry."""

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

from extender.telemetry import catalogue
from extender.telemetry.http import HttpTelemetry
from extender.telemetry.placement import PlacementTelemetry
from extender.telemetry.slurm import SlurmTelemetry
from service.health import Health
from service.metrics import Metric, Problems


class Telemetry:
    """The extender's own metrics, in one registry, with a part for each domain."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.http = HttpTelemetry(self.registry)
        self.slurm = SlurmTelemetry(self.registry)
        self.placement = PlacementTelemetry(self.registry)
        self._policy = self._good(catalogue.POLICY)
        self._pools = self._good(catalogue.POOLS)
        self._preempted_unasked = catalogue.UNASKED_PREEMPTIONS.counter(self.registry)

    def preempted_unasked(self) -> None:
        """Counts a Pod that kube-scheduler evicted for a managed Pod without a call of /preempt."""
        self._preempted_unasked.inc()

    def follow(self, health: Health) -> None:
        """Adds the metric of degraded components."""
        self.placement.health = health
        self.registry.register(Problems(health, catalogue.DEGRADED))

    def policy_read(self, good: bool) -> None:
        self._policy.set(good)

    def pools_read(self, good: bool) -> None:
        self._pools.set(good)

    def _good(self, metric: Metric) -> Gauge:
        gauge = metric.gauge(self.registry)
        gauge.set(1)
        return gauge
