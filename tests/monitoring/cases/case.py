"""A case of an alert, as tests of promtool.

Series are in promtool's words: "0x60" is 61 times 0, "0+1x60" grows by 1 a minute, "_" is none. They
begin at 0, and so does the clock: time() is the seconds since the first of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

Series = dict[str, str]

BROKEN, WELL = "broken", "well"
"""Names of clusters."""
_NAMESPACE = "slurm"


class Case(NamedTuple):
    """One alert: it fires at a time ("20m") by some series, and does not at the same time by others."""

    alert: str
    fires: Series
    quiet: Series
    at: str = "20m"
    alone: bool = False
    """It is about a release of which a Prometheus has nothing at all: another one is not told apart."""

    def tests(self) -> Iterable[dict[str, Any]]:
        """Yields both as promtool's tests; and one in which both are releases of one Prometheus."""
        yield _test(f"{self.alert} fires", self.alert, self.fires, self.at, "{}")
        yield _test(f"{self.alert} is quiet", self.alert, self.quiet, self.at)
        if not self.alone:
            yield _test(f"{self.alert} names the release", self.alert, self._both, self.at, self._named)

    def passed_over(self) -> dict[str, Any]:
        """Returns a test in which both are releases, and the alert goes by the one that is well."""
        return _test(f"{self.alert} is about {WELL}", self.alert, self._both, self.at)

    @property
    def _both(self) -> Series:
        return _of(self.fires, BROKEN) | _of(self.quiet, WELL)

    @property
    def _named(self) -> str:
        """kube-apiserver is in no namespace of a release."""
        if all(series.startswith("apiserver_") for series in self.fires):
            return f'{{cluster="{BROKEN}"}}'
        return f'{{cluster="{BROKEN}",namespace="{_NAMESPACE}"}}'


def _of(series: Series, cluster: str) -> Series:
    """The series of one of several clusters, in namespaces of the same name."""
    more = f'cluster="{cluster}",namespace="{_NAMESPACE}"'
    return {
        re.sub(
            r"^(\w+)(?:\{(.+)\})?$", lambda m: f"{m[1]}{{{','.join(filter(None, (more, m[2])))}}}", each
        ): values
        for each, values in series.items()
    }


def _test(name: str, alert: str, series: Series, at: str, *fires: str) -> dict[str, Any]:
    """It fires for the releases with these labels, and for no other."""
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
    """A component of two replicas, as far as they have told of its trouble at all. `leads`: 0 where
    neither leads."""
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
    """A component of the agent of one Node."""
    return {f'node_agent_component_degraded{{component="{component}",instance="a",node="n1"}}': values}
