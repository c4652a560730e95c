"""Tests of Pods that may not share a Node or a zone: Slurm places the Pods nearly as fast as
kube-scheduler alone, although Slurm packs jobs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.builders import PREFIX
from tests.end_to_end.actors import Actors
from tests.eventually import eventually

pytestmark = pytest.mark.real

NODES, ZONES = 16, 3
ZONE = "topology.kubernetes.io/zone"
WITHIN_S = 5.0
MOST_TIMES = 4.0
"""Placing Pods with placeholders may take this multiple of kube-scheduler's own time, plus `SLURM_S`."""
SLURM_S = 1.0
MANAGED = {f"{PREFIX}partition": "ext"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Starts EXTERNAL nodes (Slurm 26.05 and later), because EXTERNAL nodes need no slurmd. A second
    kube-scheduler binds Pods without placeholders, and calls no extender."""
    spec = ClusterSpec(nodes=1, external_nodes=NODES, own_scheduler=True)
    with (
        tempfile.TemporaryDirectory(prefix="pods-apart-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        for number in range(NODES):
            name, zone = f"external-{number + 1}", f"{ZONE}=z{number % ZONES}"
            running.kubectl("label", "node", name, zone)
        yield running


def alone(app: str) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": required}}


def spread(app: str) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    return {"topologySpreadConstraints": [constraint | selector]}


def place(
    cluster: Cluster, app: str, replicas: int, spec: Mapping[str, Any], annotations: Mapping[str, str]
) -> tuple[float, list[str]]:
    """Creates a Deployment; returns the seconds until all Pods are bound, and their Nodes."""
    resources = {"requests": {"cpu": "1", "memory": "64Mi"}}
    container = {"name": "main", "image": "registry.invalid/main", "resources": resources}
    template = {
        "metadata": {"labels": {"app": app}, "annotations": annotations},
        "spec": {"containers": [container], **spec},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": app}},
            "template": template,
        },
    }
    begun = perf_counter()
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(deployment))

    def bound() -> list[str]:
        listed = actors.api.get("/pods", params={"labelSelector": f"app={app}"}).raise_for_status()
        owned = [pod for pod in listed.json()["items"] if "ownerReferences" in pod["metadata"]]
        nodes = [pod["spec"].get("nodeName") for pod in owned]
        return nodes if len(nodes) == replicas and all(nodes) else []

    with closing(Actors(cluster)) as actors:
        nodes = eventually(bound, f"{replicas} Pods of {app} are bound", within_s=60.0)
    seconds = perf_counter() - begun
    cluster.kubectl("delete", "deployment", app, "--wait=true")
    return seconds, nodes


def zone_of(node: str) -> int:
    return (int(node.removeprefix("external-")) - 1) % ZONES


def is_nearly_as_fast(ours: float, alone: float) -> None:
    assert ours <= WITHIN_S, f"{ours:.1f} s; kube-scheduler alone: {alone:.1f} s"
    assert ours <= SLURM_S + MOST_TIMES * alone, f"{ours:.1f} s; kube-scheduler alone: {alone:.1f} s"


def test_anti_affine_and_spread_pods_are_bound_as_fast_as_by_kube_scheduler(cluster: Cluster) -> None:
    by_kube_scheduler, _ = place(cluster, "alone-plain", NODES, alone("alone-plain"), {})
    ours, nodes = place(cluster, "alone", NODES, alone("alone"), MANAGED)
    assert sorted(nodes) == sorted(f"external-{number + 1}" for number in range(NODES))
    is_nearly_as_fast(ours, by_kube_scheduler)

    by_kube_scheduler, _ = place(cluster, "spread-plain", 12, spread("spread-plain"), {})
    ours, nodes = place(cluster, "spread", 12, spread("spread"), MANAGED)
    assert sorted(map(zone_of, nodes)) == sorted([*range(ZONES)] * 4)
    is_nearly_as_fast(ours, by_kube_scheduler)


def test_pods_are_spread_beside_unmanaged_pods_of_the_same_label(cluster: Cluster) -> None:
    """kube-scheduler counts the unmanaged Pods. The extender's ledger does not know of these Pods."""
    for number in range(2):
        unmanaged = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"unmanaged-{number}", "labels": {"app": "beside"}},
            "spec": {
                "nodeName": "external-1",
                "containers": [{"name": "main", "image": "registry.invalid/main"}],
            },
        }
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(unmanaged))
    _, nodes = place(cluster, "beside", 4, spread("beside"), MANAGED)
    assert sorted(map(zone_of, nodes)) == [1, 1, 2, 2]
