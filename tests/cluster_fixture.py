"""A whole cluster that all tests of a run may share. Leave it as you found it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import KUBERNETES_RELEASES, ClusterSpec


def bare_cluster(directory: Path) -> Cluster:
    """Starts a cluster with one Node and no extender, of the Kubernetes release that KUBERNETES_RELEASE
    names, or else of the newest."""
    release = ClusterSpec().kubernetes_release or KUBERNETES_RELEASES[0]
    return Cluster.up(ClusterSpec(nodes=1, extender=False, kubernetes_release=release), directory)


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four nodes of 8 CPUs, 16,000 MB and 4 GPUs; Kubernetes, but no extender."""
    spec = ClusterSpec(nodes=4, cpus_per_node=8, memory_mb=16_000, gpus_per_node=4, extender=False)
    with Cluster.up(spec, tmp_path_factory.mktemp("shared")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def shared_cluster_if_needed(request: pytest.FixtureRequest) -> Callable[[], Cluster]:
    """The same, brought up when it is first asked for: some of a test's parameters do without."""

    def shared() -> Cluster:
        cluster: Cluster = request.getfixturevalue("shared_cluster")
        return cluster

    return shared


@contextmanager
def deleted(cluster: Cluster, kind: str, name: str) -> Iterator[None]:
    """Deletes an object, and creates the object again at the end of the block."""
    kept = json.loads(cluster.kubectl("get", kind, name, "-o", "json").stdout)
    for field in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
        kept["metadata"].pop(field, None)
    kept.pop("status", None)
    cluster.kubectl("delete", kind, name)
    try:
        yield
    finally:
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(kept))
