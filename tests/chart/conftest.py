"""Clusters of the oldest and the newest Kubernetes, with what the chart's objects need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.chart import POOLS_NAMESPACE
from deploy.local.cluster import Cluster
from deploy.local.spec import KUBERNETES_RELEASES
from tests.cluster_fixture import cluster_of_release

KINDS = [Path(__file__).with_name(f"{name}.yaml") for name in ("cert_manager", "prometheus_operator")]
NAMESPACES = ("team-a", "team-b", POOLS_NAMESPACE)


@pytest.fixture(scope="session", params=KUBERNETES_RELEASES)
def release_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """One of each release; the oldest only where it has been built, as `make test-oldest` does."""
    with cluster_of_release(request.param, tmp_path_factory.mktemp("chart")) as cluster:
        for name in NAMESPACES:
            cluster.kubectl("create", "namespace", name)
        for kinds in KINDS:
            cluster.kubectl("create", "-f", str(kinds))
            cluster.kubectl("wait", "--for=condition=Established", "-f", str(kinds), "--timeout=30s")
        yield cluster
