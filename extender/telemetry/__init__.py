"""Logs and metrics of the extender. Telemetry listens; code that decides does not know it."""

from prometheus_client import CollectorRegistry, Counter, Gauge

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
        self._policy = self._good("policy", "policy's file")
        self._pools = self._good("pools", "file of pools")
        self._preempted_unasked = Counter(
            "slurm_extender_unasked_preemptions",
            "Pods that kube-scheduler evicted for a Pod that Slurm had not let in.",
            registry=self.registry,
        )

    def preempted_unasked(self) -> None:
        """Counts a Pod that kube-scheduler evicted for a managed one, and did not ask /preempt."""
        self._preempted_unasked.inc()

    def follow(self, health: Health) -> None:
        """Adds the metric of troubled components."""
        self.placement.health = health
        self.registry.register(Troubles(health))

    def policy_read(self, good: bool) -> None:
        """Notes whether the policy file is good."""
        self._policy.set(good)

    def pools_read(self, good: bool) -> None:
        """Notes whether the file of pools is good."""
        self._pools.set(good)

    def _good(self, name: str, file: str) -> Gauge:
        words = f"Whether the {file} is good as it is now; otherwise the last good one counts."
        gauge = Gauge(f"slurm_extender_{name}_good", words, registry=self.registry)
        gauge.set(1)
        return gauge
