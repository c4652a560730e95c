"""Metrics of the calls to Slurm, and of unreadable entries in Slurm's replies."""

from prometheus_client import CollectorRegistry

from extender.telemetry import catalogue
from service.metrics import child
from service.rate_limited_log import RateLimitedLog


class SlurmTelemetry:
    """Observer of the client of slurmrestd."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rest_calls = catalogue.SLURMRESTD_CALLS.counter(registry)
        self._rest_bytes = catalogue.SLURMRESTD_BYTES.counter(registry)
        self._malformed = catalogue.MALFORMED.counter(registry)
        self._malformed_log = RateLimitedLog(
            "an entry of Slurm's answer cannot be read, and is passed over"
        )

    def asked(self, call: str, sent: int, received: int) -> None:
        """Counts a request to slurmrestd and its bytes."""
        child(self._rest_calls, call).inc()
        child(self._rest_bytes, call, "sent").inc(sent)
        child(self._rest_bytes, call, "received").inc(received)

    def malformed(self, call: str, why: str) -> None:
        """Counts and logs an unreadable entry in a reply of slurmrestd."""
        child(self._malformed, call).inc()
        self._malformed_log.says(call=call, why=why)
