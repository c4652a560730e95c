"""A whole cluster that all tests of a run share. Each test must leave the cluster as it was."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import KUBERNETES_RELEASES, ClusterSpec


def bare_cluster(directory: Path) -> Cluster:
    """Starts a cluster with a single Node and no extender. The variable KUBERNETES_RELEASE names the
    release of Kubernetes. By default, the cluster has the newest release."""
    release = ClusterSpec().kubernetes_release or KUBERNETES_RELEASES[0]
    return Cluster.up(ClusterSpec(nodes=1, extender=False, kubernetes_release=release), directory)


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with Kubernetes but no extender: four nodes of 8 CPUs, 16,000 MB and 4 GPUs."""
    spec = ClusterSpec(nodes=4, cpus_per_node=8, memory_mb=16_000, gpus_per_node=4, extender=False)
    with Cluster.up(spec, tmp_path_factory.mktemp("shared")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def shared_cluster_if_needed(request: pytest.FixtureRequest) -> Callable[[], Cluster]:
    """Returns a function that starts the shared cluster at its first call, for tests of which only some
    parameters need a cluster."""

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
