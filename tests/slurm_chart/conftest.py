"""Fixtures: a cluster with the CustomResourceDefinitions and namespaces that the chart's objects
need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.progress import Report
from tests.cluster_fixture import bare_cluster
from tests.install.reporting import reporter
from tests.log_of_slurmctld import pytest_runtest_makereport
from tests.slurm_chart.rendering import NAMESPACE

__all__ = ["pytest_runtest_makereport", "release_cluster"]

KINDS = CHECKOUT / "tests/chart/prometheus_operator.yaml"
NAMESPACES = (NAMESPACE, "slurm-extender", "slurm-nodes")
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> Report:
    """Reports progress during long steps."""
    return reporter(request.config)


@pytest.fixture(scope="session")
def release_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with bare_cluster(tmp_path_factory.mktemp("slurm-chart")) as cluster:
        for name in NAMESPACES:
            cluster.kubectl("create", "namespace", name)
        cluster.kubectl("create", "namespace", "restricted")
        cluster.kubectl("label", "namespace", "restricted", RESTRICTED)
        cluster.kubectl("create", "-f", str(KINDS))
        cluster.kubectl("wait", "--for=condition=Established", "-f", str(KINDS), "--timeout=30s")
        yield cluster
