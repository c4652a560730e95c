"""Fixture: a cluster with the CustomResourceDefinitions and namespaces that the chart's objects need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.chart import POOLS_NAMESPACE
from deploy.local.cluster import Cluster
from tests.cluster_fixture import bare_cluster

KINDS = [Path(__file__).with_name(f"{name}.yaml") for name in ("cert_manager", "prometheus_operator")]
NAMESPACES = ("team-a", "team-b", POOLS_NAMESPACE)


@pytest.fixture(scope="session")
def release_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with bare_cluster(tmp_path_factory.mktemp("chart")) as cluster:
        for name in NAMESPACES:
            cluster.kubectl("create", "namespace", name)
        for kinds in KINDS:
            cluster.kubectl("create", "-f", str(kinds))
            cluster.kubectl("wait", "--for=condition=Established", "-f", str(kinds), "--timeout=30s")
        yield cluster
