"""A case of an alert, as tests for promtool.

Series use promtool's notation: "0x60" is 61 times 0, "0+1x60" grows by 1 a minute, "_" is no sample. The
first sample is at time 0, so time() is the number of seconds since the first sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

Series = dict[str, str]

BROKEN, WELL = "broken", "well"
"""Names of two clusters: the alert fires for BROKEN, and not for WELL."""
_NAMESPACE = "slurm"


class Case(NamedTuple):
    """An alert that fires at the time `at` with the series `fires`, and does not fire with the series
    `quiet`."""

    alert: str
    fires: Series
    quiet: Series
    at: str = "20m"
    alone: bool = False
    """True if Prometheus has no metrics of the broken release. If the same Prometheus also has another
    release, the alert cannot find out about the missing metrics."""

    def tests(self) -> Iterable[dict[str, Any]]:
        """Yields two tests for promtool: the alert fires, and the alert does not fire. Unless `alone`,
        also yields a test with both releases in one Prometheus."""
        yield _test(f"{self.alert} fires", self.alert, self.fires, self.at, "{}")
        yield _test(f"{self.alert} is quiet", self.alert, self.quiet, self.at)
        if not self.alone:
            yield _test(f"{self.alert} names the release", self.alert, self._both, self.at, self._named)

    def passed_over(self) -> dict[str, Any]:
        """Returns a test with both releases, for rules that select only the healthy release. So the
        alert must not fire."""
        return _test(f"{self.alert} is about {WELL}", self.alert, self._both, self.at)

    @property
    def _both(self) -> Series:
        return _of(self.fires, BROKEN) | _of(self.quiet, WELL)

    @property
    def _named(self) -> str:
        """Returns the labels of the alert for the broken release. The metrics of kube-apiserver have no
        namespace of a release."""
        if all(series.startswith("apiserver_") for series in self.fires):
            return f'{{cluster="{BROKEN}"}}'
        return f'{{cluster="{BROKEN}",namespace="{_NAMESPACE}"}}'


def _of(series: Series, cluster: str) -> Series:
    """Returns the series with the labels of a cluster. In each cluster, the release has the same
    namespace."""
    more = f'cluster="{cluster}",namespace="{_NAMESPACE}"'
    return {
        re.sub(
            r"^(\w+)(?:\{(.+)\})?$", lambda m: f"{m[1]}{{{','.join(filter(None, (more, m[2])))}}}", each
        ): values
        for each, values in series.items()
    }


def _test(name: str, alert: str, series: Series, at: str, *fires: str) -> dict[str, Any]:
    """Returns a test in which the alert must fire for exactly the releases with the labels `fires`."""
    of = "by (cluster, namespace)"
    expr = f'count {of} (ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0'
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": at,
                "exp_samples": [{"labels": each, "value": 1} for each in fires],
            }
        ],
    }


def replicas(component: str, leader: str = "", standby: str = "", leads: int = 1) -> Series:
    """Returns the series of a component (a part that can be degraded) in two replicas. A replica with an
    empty text has never reported the component. `leads` is 0 if neither replica leads."""
    told = {
        f'slurm_extender_component_degraded{{component="{component}",instance="{each}"}}': values
        for each, values in (("a", leader), ("b", standby))
        if values
    }
    return told | {
        'slurm_extender_leading{instance="a"}': f"{leads}x60",
        'slurm_extender_leading{instance="b"}': "0x60",
    }


def agent_degraded(component: str, values: str) -> Series:
    """Returns the series of a component of the agent on a Node."""
    return {f'node_agent_component_degraded{{component="{component}",instance="a",node="n1"}}': values}
