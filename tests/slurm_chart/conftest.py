"""Clusters of the oldest and the newest Kubernetes, with the namespaces that objects need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.spec import KUBERNETES_RELEASES
from tests.cluster_fixture import cluster_of_release
from tests.log_of_slurmctld import pytest_runtest_makereport
from tests.slurm_chart.rendering import NAMESPACE

__all__ = ["pytest_runtest_makereport", "release_cluster"]

KINDS = CHECKOUT / "tests/chart/prometheus_operator.yaml"
NAMESPACES = (NAMESPACE, "slurm-extender", "slurm-nodes")
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@pytest.fixture(scope="session", params=KUBERNETES_RELEASES)
def release_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """One of each release; the oldest only where it has been built, as `make test-oldest` does."""
    with cluster_of_release(request.param, tmp_path_factory.mktemp("slurm-chart")) as cluster:
        for name in NAMESPACES:
            cluster.kubectl("create", "namespace", name)
        cluster.kubectl("create", "namespace", "restricted")
        cluster.kubectl("label", "namespace", "restricted", RESTRICTED)
        cluster.kubectl("create", "-f", str(KINDS))
        cluster.kubectl("wait", "--for=condition=Established", "-f", str(KINDS), "--timeout=30s")
        yield cluster
