"""Fixtures: a real cluster that has the metrics of the extender, kube-apiserver and slurmctld."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.prometheus import Prometheus, prometheus
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors

SPEC = ClusterSpec(
    nodes=4,
    slurm_conf=("MetricsType=metrics/openmetrics", "LogTimeFormat=rfc5424_ms"),
    extender_settings=(("EVICTIONS_PER_MINUTE", "1"), ("AUDIT_INTERVAL_S", "1")),
)


@pytest.fixture(scope="session")
def tools() -> Prometheus:
    return prometheus()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster with metrics of slurmctld. The extender audits every second, and evicts at most a single
    Pod in a minute."""
    with (
        tempfile.TemporaryDirectory(prefix="metrics-") as directory,
        Cluster.up(SPEC, Path(directory)) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def actors(cluster: Cluster) -> Iterator[Actors]:
    actors = Actors(cluster)
    yield actors
    actors.close()
