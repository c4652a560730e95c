"""The final audit: compares both systems completely, after the cluster has healed and settled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from deploy.local.cluster import Cluster
from tests.administrator import Kubernetes
from tests.chaos.anomalies import Anomaly, anomalies, of_nodes
from tests.chaos.history import SeenPod, read_pod
from tests.chaos.observer import Observer

SETTLING_S = 90.0


@dataclass(frozen=True, slots=True)
class Audit:
    """The remaining anomalies, and the seconds until no anomaly remained."""

    found: tuple[Anomaly, ...]
    settled_s: float
    pods: int
    bound: int
    waiting: int


def audit(cluster: Cluster, observer: Observer, node_cpus: Mapping[str, int]) -> Audit:
    """Waits until both systems agree, for at most SETTLING_S. Returns the remaining anomalies."""
    begin, kubernetes = time.monotonic(), Kubernetes(cluster)
    try:
        while True:
            pods, jobs = _read(kubernetes), observer.jobs()
            nodes = observer.nodes()
            usable = {each.name: node_cpus[each.name] for each in nodes if each.in_service}
            found = [*anomalies(pods, jobs, node_cpus, usable), *of_nodes(nodes)]
            took = time.monotonic() - begin
            if not found or took > SETTLING_S:
                break
            time.sleep(1.0)
    finally:
        kubernetes.close()
    bound = sum(1 for pod in pods if pod.node and not pod.over)
    waiting = sum(1 for pod in pods if not pod.node and not pod.over)
    return Audit(tuple(found), took, len(pods), bound, waiting)


def _read(kubernetes: Kubernetes) -> list[SeenPod]:
    listed = kubernetes.ask("GET", "/api/v1/namespaces/default/pods")
    return [read_pod(manifest) for manifest in listed["items"]]
