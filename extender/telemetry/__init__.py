"""Logs and metrics of the extender. Telemetry listens; code that decides does not know it."""

from prometheus_client import CollectorRegistry, Gauge

from extender.telemetry.http import HttpTelemetry
from extender.telemetry.placement import PlacementTelemetry
from extender.telemetry.slurm import SlurmTelemetry
from service.health import Health
from service.metrics import Troubles


class Telemetry:
    """The extender's own metrics, in one registry, with a part for each domain."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.http = HttpTelemetry(self.registry)
        self.slurm = SlurmTelemetry(self.registry)
        self.placement = PlacementTelemetry(self.registry)
        self._policy = Gauge(
            "slurm_extender_policy_good",
            "Whether the policy's file is good as it is now; otherwise the last good one counts.",
            registry=self.registry,
        )
        self._policy.set(1)

    def follow(self, health: Health) -> None:
        """Adds the metric of troubled components."""
        self.placement.health = health
        self.registry.register(Troubles(health))

    def policy_read(self, good: bool) -> None:
        """Notes whether the policy file is good."""
        self._policy.set(good)
