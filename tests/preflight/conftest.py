"""Fixture: for each release of Slurm, a real cluster with an extender."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec


@pytest.fixture(scope="session", params=list(DEBIAN_SUITES))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    spec = ClusterSpec(nodes=2, release=request.param)
    with (
        tempfile.TemporaryDirectory(prefix="preflight-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        yield running
