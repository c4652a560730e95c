"""One cluster for each driver of cgroups: the guest is its only node. Each test leaves it empty."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.guest.nodes import GPU
from deploy.local.spec import CGROUP_DRIVERS, ClusterSpec
from tests.end_to_end.actors import Actors
from tests.node.real_node import RealNode

_LOGS = ("guest", "kubelet", "node-agent", "extender", "slurmd-guest")


@pytest.fixture(scope="session", params=CGROUP_DRIVERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The guest alone, with one driver of cgroups after the other."""
    spec = ClusterSpec(
        nodes=0,
        guest=True,
        guest_cgroups=request.param,
        memory_mb=4000,
        kill_wait=30,
        extender_settings=(("GRES", json.dumps({GPU: "gpu"})),),
    )
    with (
        tempfile.TemporaryDirectory(prefix="node-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def all_nodes(cluster: Cluster) -> Iterator[RealNode]:
    actors = Actors(cluster)
    yield RealNode(actors)
    actors.close()


@pytest.fixture
def node(all_nodes: RealNode) -> Iterator[RealNode]:
    """The guest as a Node, with all of its programs running."""
    all_nodes.begin()
    yield all_nodes
    all_nodes.clean_up()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure comes with the ends of the logs."""
    report = yield
    node = getattr(item, "funcargs", {}).get("all_nodes")
    if report.failed and isinstance(node, RealNode):
        for name in _LOGS:
            log = node.cluster.logs / f"{name}.log"
            if log.exists():  # the cluster may be gone already
                report.sections.append((log.name, log.read_text(errors="replace")[-3000:]))
    return report
