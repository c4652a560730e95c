"""Fixture: a cluster with the CustomResourceDefinitions of Argo CD and Flux."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from tests.cluster_fixture import bare_cluster
from tests.gitops.examples import FOLDER

KINDS = [Path(__file__).with_name(f"{name}.yaml") for name in ("argo_cd", "flux")]


@pytest.fixture(scope="session")
def gitops_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with bare_cluster(tmp_path_factory.mktemp("gitops")) as cluster:
        for kinds in KINDS:
            cluster.kubectl("create", "-f", str(kinds))
            cluster.kubectl("wait", "--for=condition=Established", "-f", str(kinds), "--timeout=30s")
        cluster.kubectl("create", "namespace", "argocd")
        cluster.kubectl("create", "-f", str(FOLDER / "namespaces.yaml"))
        yield cluster
