"""Metrics of the calls to Slurm, and of entries in its replies that cannot be read."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter

from service.metrics import child
from service.seldom import Seldom


class SlurmTelemetry:
    """An observer of the client of slurmrestd."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._rest_calls = counter(
            "slurm_extender_slurmrestd_calls",
            "Requests to slurmrestd; `GET jobs/state` is about all jobs.",
            ["call"],
        )
        self._rest_bytes = counter(
            "slurm_extender_slurmrestd_bytes",
            "What these requests (sent) and the bodies of their replies (received) came to.",
            ["call", "direction"],
        )
        self._malformed = counter(
            "slurm_extender_malformed_entries",
            "Entries of slurmrestd's replies that could not be read and were passed over, by the call.",
            ["call"],
        )
        self._malformed_told = Seldom("an entry of Slurm's answer cannot be read, and is passed over")

    def asked(self, call: str, sent: int, received: int) -> None:
        """Counts a request to slurmrestd and its bytes."""
        child(self._rest_calls, call).inc()
        child(self._rest_bytes, call, "sent").inc(sent)
        child(self._rest_bytes, call, "received").inc(received)

    def malformed(self, call: str, why: str) -> None:
        """Counts and logs an entry in a reply of slurmrestd that cannot be read."""
        child(self._malformed, call).inc()
        self._malformed_told.says(call=call, why=why)
