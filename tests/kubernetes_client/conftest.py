"""Fixture: a bench with an in-memory kube-apiserver or a real kube-apiserver."""

from collections.abc import AsyncIterator, Callable

import pytest

from deploy.local.cluster import Cluster
from kubernetes_client import rest
from kubernetes_client.rest import KubernetesRest
from tests.kubernetes_client.bench import PAGE, Bench, InMemoryBench, RealBench


@pytest.fixture(params=["in_memory", pytest.param("real", marks=pytest.mark.real)])
async def bench(
    request: pytest.FixtureRequest,
    shared_cluster_if_needed: Callable[[], Cluster],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Bench]:
    if request.param == "in_memory":
        yield InMemoryBench()
        return
    monkeypatch.setattr(rest, "_PAGE", PAGE)
    cluster = shared_cluster_if_needed()
    kubernetes = await KubernetesRest.connect(str(cluster.kubeconfig))
    found = RealBench(kubernetes, cluster)
    yield found
    found.clear()
    await kubernetes.aclose()
