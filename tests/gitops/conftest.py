"""Clusters of the oldest and the newest Kubernetes that know the kinds of Argo CD and Flux."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import KUBERNETES_RELEASES
from tests.cluster_fixture import cluster_of_release
from tests.gitops.examples import FOLDER

KINDS = [Path(__file__).with_name(f"{name}.yaml") for name in ("argo_cd", "flux")]


@pytest.fixture(scope="session", params=KUBERNETES_RELEASES)
def gitops_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """One of each release; the oldest only where it has been built, as `make test-oldest` does."""
    with cluster_of_release(request.param, tmp_path_factory.mktemp("gitops")) as cluster:
        for kinds in KINDS:
            cluster.kubectl("create", "-f", str(kinds))
            cluster.kubectl("wait", "--for=condition=Established", "-f", str(kinds), "--timeout=30s")
        cluster.kubectl("create", "namespace", "argocd")
        cluster.kubectl("create", "-f", str(FOLDER / "namespaces.yaml"))
        yield cluster
