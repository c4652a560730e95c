"""Measures how long a new Pod waits just after a failure of the leader's node."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import httpx

from deploy.local.cluster import Cluster
from tests.administrator import Kubernetes
from tests.chaos.cluster_spec import PROBES
from tests.chaos.nemesis import Nemesis
from tests.chaos.quiet_periods import QuietPeriods
from tests.chaos.workload import Workload
from tests.end_to_end.actors import pod

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/slurm-extender"
_LONGEST_S = 60.0


@dataclass(slots=True)
class Failovers:
    """Kills the leading extender and the kube-scheduler beside the extender, and then creates a Pod."""

    cluster: Cluster
    nemesis: Nemesis
    workload: Workload
    quiet: QuietPeriods
    log: Callable[[str], None]
    took_s: list[float] = field(default_factory=list)
    """Seconds from the first try to create a probe until the probe's Binding, for each probe."""

    def measure(self, number: int) -> None:
        """Measures a failover. Call this method only in a quiet period."""
        kubernetes = Kubernetes(self.cluster)
        try:
            self._measure(f"probe-{number}", kubernetes)
        finally:
            kubernetes.close()

    def _measure(self, name: str, kubernetes: Kubernetes) -> None:
        pair = self._leading_pair(kubernetes)
        if pair is None:
            self.log("nobody holds the Lease: no failover is measured")
            return
        with self.quiet.disturbed("failover"):
            self.nemesis.hold_down(*pair)
            try:
                took = self._probe(name, kubernetes)
            finally:
                self.nemesis.let_up(*pair)
            time.sleep(1.0)  # until the threads of `Nemesis` restart both
        self.took_s.append(took)
        self.log(f"failover from {pair[0]}: {name} bound within {took:.1f} s")
        self.workload.delete(name)

    def _leading_pair(self, kubernetes: Kubernetes) -> tuple[str, str] | None:
        with suppress(httpx.HTTPError):
            holder = kubernetes.ask("GET", LEASE)["spec"].get("holderIdentity")
            pairs = zip(self.cluster.spec.extender_names, self.cluster.spec.scheduler_names, strict=True)
            return next((pair for pair in pairs if pair[0] == holder), None)
        return None

    def _probe(self, name: str, kubernetes: Kubernetes) -> float:
        begin = time.monotonic()
        self.workload.create(pod(name, annotations={"partition": PROBES}))
        while (took := time.monotonic() - begin) < _LONGEST_S:
            with suppress(httpx.HTTPError):
                seen = kubernetes.ask("GET", f"/api/v1/namespaces/default/pods/{name}")
                if seen["spec"].get("nodeName"):
                    return time.monotonic() - begin
            time.sleep(0.05)
        return took
