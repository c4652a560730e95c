"""Plays the kubelet of slurmctld's container: starts slurmctld again whenever slurmctld has ended, and
ends a slurmctld that does not answer the chart's liveness probe."""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.layout import CHECKOUT
from tests.meanwhile import meanwhile

_TEMPLATES: Final = CHECKOUT / "deploy/charts/slurm/templates"


def _of_chart(template: str, after: str, key: str) -> int:
    """Returns the number that follows `key` for the first time after the text `after`, in a template of
    the chart."""
    text = (_TEMPLATES / template).read_text()
    found = re.search(rf"{key}: (\d+)", text[text.index(after) :])
    assert found is not None, (template, key)
    return int(found[1])


STARTUP_PERIOD_S: Final = _of_chart("_pods.tpl", "\nstartupProbe:", "periodSeconds")
PERIOD_S: Final = _of_chart("_pods.tpl", "\nlivenessProbe:", "periodSeconds")
TIMEOUT_S: Final = _of_chart("_pods.tpl", "\nlivenessProbe:", "timeoutSeconds")
MAX_FAILURES: Final = _of_chart("_pods.tpl", "\nlivenessProbe:", "failureThreshold")
GRACE_S: Final = _of_chart("slurmctld.yaml", "kind: StatefulSet", "terminationGracePeriodSeconds")
"""Time between SIGTERM and SIGKILL."""
RESTART_S: Final = PERIOD_S * MAX_FAILURES + GRACE_S
"""Time after which a hanging slurmctld has ended: the probes have failed, and the grace period is
over."""


class Kubelet:
    """Connects to slurmctld's TCP port, as the chart's probes do. The port is from the slurm.conf that
    slurmctld read at its start."""

    def __init__(self, cluster: Cluster, now: float) -> None:
        self._cluster = cluster
        self._begin(now, serves=cluster.is_running("slurmctld"))

    def look(self, now: float) -> None:
        """Starts slurmctld if slurmctld does not run. Otherwise probes slurmctld if a probe is due."""
        if not self._cluster.is_running("slurmctld"):
            self._cluster.start("slurmctld", wait=False)
            self._begin(now, serves=False)
        elif now >= self._next_probe:
            self._probe(now)

    def _begin(self, now: float, *, serves: bool) -> None:
        """Resets the state of the probes. `serves` is True after a successful startup probe. Failures
        count only after this success."""
        conf = (self._cluster.directory / "slurm/etc/slurm.conf").read_text()
        self._port = int(re.findall(r"^SlurmctldPort=(\d+)", conf, re.MULTILINE)[0])
        self._serves, self._failures, self._next_probe = serves, 0, now

    def _probe(self, now: float) -> None:
        try:
            socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S).close()
            self._serves, self._failures = True, 0
        except OSError:
            self._failures += self._serves
        if self._failures == MAX_FAILURES:
            self._failures = 0
            self._end()
        self._next_probe = now + (PERIOD_S if self._serves else STARTUP_PERIOD_S)

    def _end(self) -> None:
        with suppress(ClusterError):  # slurmctld has just ended, or ignores SIGTERM
            self._cluster.stop("slurmctld", within_s=GRACE_S)
        if self._cluster.is_running("slurmctld"):
            self._cluster.kill("slurmctld")


@contextmanager
def kubelet(cluster: Cluster) -> Iterator[None]:
    """Keeps slurmctld running while the block runs."""
    stand_in = Kubelet(cluster, time.monotonic())
    with meanwhile(lambda: stand_in.look(time.monotonic()), 0.1):
        yield
