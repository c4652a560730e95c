"""Metrics that every replica reports at each scrape, whether the replica leads or not."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from extender.execution.job_id_check import JobIdCheck
from extender.telemetry import catalogue
from service.metrics import Metric, installed_version

Lifetime = tuple[float | None, float | None]
"""Times of the issue and of the expiry, in UNIX seconds; None if unknown."""


def _unknown() -> Lifetime:
    return None, None


class ReplicaStates(Collector):
    """Collector of the metrics of the parts of one replica."""

    def __init__(
        self,
        job_ids: JobIdCheck,
        token: Callable[[], Lifetime],
        lease_transitions: Callable[[], int | None],
    ) -> None:
        self._job_ids = job_ids
        self._token = token
        self._lease_transitions = lease_transitions
        self.certificate: Callable[[], Lifetime] = _unknown
        """Returns the lifetime of the listeners' certificate, if the listeners have a certificate."""

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        build = catalogue.BUILD.read()
        build.add_metric([installed_version("slurm-extender")], 1)
        yield build
        yield catalogue.LEASE_TRANSITIONS.read_counter(self._lease_transitions())
        yield from _lifetime(catalogue.TOKEN_ISSUED, catalogue.TOKEN_ENDS, self._token())
        certificate = self.certificate()
        yield from _lifetime(catalogue.CERTIFICATE_ISSUED, catalogue.CERTIFICATE_ENDS, certificate)
        job_ids = self._job_ids
        yield catalogue.NEXT_JOB_ID.with_value(job_ids.latest)
        yield catalogue.FIRST_JOB_ID.with_value(job_ids.ids.first)
        yield catalogue.END_JOB_ID.with_value(job_ids.ids.end)
        yield catalogue.SLURMCTLD_STARTED.with_value(job_ids.slurmctld_started)


def _lifetime(issued: Metric, ends: Metric, times: Lifetime) -> Iterator[GaugeMetricFamily]:
    yield issued.with_value(times[0])
    yield ends.with_value(times[1])
