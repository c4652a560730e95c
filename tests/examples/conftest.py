"""Clusters on which the tests run the examples. For each Slurm release, a cluster has every feature that
an example needs. The demo's cluster lacks some of the features."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.accounting import Account, User, declare
from deploy.local.cluster import Cluster
from deploy.local.demo.story import NODES, cluster_of
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from tests.examples.reader import PATIENT, Reader, Running

PREEMPTS = (
    "PreemptType=preempt/partition_prio",
    "PreemptMode=CANCEL",
    "PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=CANCEL",
    "PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF",
)
"""Lines of slurm.conf, as required by the pages of the two preemption examples."""
RESOURCES = {"nvidia.com/gpu": "gpu", "example.com/shard": "shard"}


def whole(release: str) -> ClusterSpec:
    return ClusterSpec(
        nodes=NODES,
        release=release,
        accounting=True,
        shared_gres=(("shard", 16),),
        slurm_conf=PREEMPTS,
        extender_settings=(("GRES", json.dumps(RESOURCES)), ("UNMANAGED_PODS", "adopt")),
    )


@pytest.fixture(scope="module", params=[*DEBIAN_SUITES])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with (
        tempfile.TemporaryDirectory(prefix="examples-") as directory,
        Cluster.up(whole(request.param), Path(directory)) as found,
    ):
        declare(found, Account("lab"), User("alice", ("lab",)))
        yield found


@pytest.fixture(scope="module")
def patient(cluster: Cluster) -> Iterator[Running]:
    """Starts the longest example. The example then runs beside all other examples."""
    running = Reader(cluster).begins(PATIENT)
    with running.process:  # closes the pipe, even if no test reads to the end
        yield running
        running.process.kill()


@pytest.fixture
def reader(cluster: Cluster, patient: Running) -> Reader:
    """Runs examples on the cluster with all features."""
    return Reader(cluster)


@pytest.fixture(scope="module")
def demo() -> Iterator[Reader]:
    """Runs examples on the cluster of `make demo`. This cluster has no accounting, no shards, and no
    partitions with preemption."""
    with (
        tempfile.TemporaryDirectory(prefix="examples-") as directory,
        Cluster.up(cluster_of(NODES), Path(directory)) as found,
    ):
        yield Reader(found)
