"""Fixtures of the tests with the real controllers of gangs. `make test-gangs` gives the folders with
their sources."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors
from tests.gang_controllers.controllers import JOBSET, LWS, running

_SOURCES = {LWS: "LWS", JOBSET: "JOBSET"}
"""Environment variables with the folders of the controllers' sources."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Starts a cluster of four nodes with 8 CPUs and 4 GPUs, with both controllers."""
    spec = ClusterSpec(nodes=4, validates_pods=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gangs-")))
        found = stack.enter_context(Cluster.up(spec, directory / "cluster"))
        for controller, variable in _SOURCES.items():
            sources, folder = Path(os.environ[variable]), directory / controller.name
            stack.enter_context(running(controller, sources, found, folder))
        yield found


@pytest.fixture
def actors(cluster: Cluster) -> Iterator[Actors]:
    """Actors of the cluster. After the test, all objects of both controllers, all Pods and all jobs
    end."""
    made = Actors(cluster)
    made.begin()
    yield made
    kinds = "leaderworkersets.leaderworkerset.x-k8s.io,jobsets.jobset.x-k8s.io"
    made.kubectl("delete", kinds, "--all", "--cascade=foreground")
    made.clean_up()
    made.close()
