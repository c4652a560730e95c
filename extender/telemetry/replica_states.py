"""What every replica tells when its metrics are read, whether it leads or not."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from extender.execution.job_id_check import JobIdCheck
from extender.telemetry import catalogue
from service.metrics import Metric, installed_version

Lifetime = tuple[float | None, float | None]
"""When something was issued, and when it ends, in UNIX seconds; None: it does not say."""


def _unknown() -> Lifetime:
    return None, None


class ReplicaStates(Collector):
    """Asks the parts of one replica."""

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
        """Gives the lifetime of the listeners' certificate, where they have one."""

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        build = catalogue.BUILD.read()
        build.add_metric([installed_version("slurm-extender")], 1)
        yield build
        yield catalogue.LEASE_TRANSITIONS.read_counter(self._lease_transitions())
        yield from _lifetime(catalogue.TOKEN_ISSUED, catalogue.TOKEN_ENDS, self._token())
        certificate = self.certificate()
        yield from _lifetime(catalogue.CERTIFICATE_ISSUED, catalogue.CERTIFICATE_ENDS, certificate)
        job_ids = self._job_ids
        yield catalogue.NEXT_JOB_ID.told(job_ids.latest)
        yield catalogue.FIRST_JOB_ID.told(job_ids.ids.first)
        yield catalogue.END_JOB_ID.told(job_ids.ids.end)
        yield catalogue.SLURMCTLD_STARTED.told(job_ids.slurmctld_started)


def _lifetime(issued: Metric, ends: Metric, times: Lifetime) -> Iterator[GaugeMetricFamily]:
    yield issued.told(times[0])
    yield ends.told(times[1])
