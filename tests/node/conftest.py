"""One cluster for each driver of cgroups: the guest is its only node. Each test leaves it empty."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.local.cluster import Cluster
from deploy.local.guest.nodes import GPU
from deploy.local.layout import CHECKOUT
from deploy.local.spec import CGROUP_DRIVERS, DEFAULT_RELEASE, ClusterSpec
from tests.end_to_end.actors import Actors
from tests.node.evidence import Evidence
from tests.node.real_node import RealNode

_LOGS = ("guest", "kubelet", "node-agent", "extender", "slurmd-guest")


class Guest(NamedTuple):
    """A release of Slurm, with what Debian has beside it, and a driver of cgroups."""

    release: str
    driver: str

    def __str__(self) -> str:
        return f"{self.release}-{self.driver}"


WITH_NRI = tuple(Guest(DEFAULT_RELEASE, driver) for driver in CGROUP_DRIVERS)
WITHOUT_NRI = (Guest("24.11", "systemd"),)
"""containerd 1.7."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test is run on the guests of its module."""
    if "cluster" in metafunc.fixturenames:
        guests = getattr(metafunc.module, "GUESTS", WITH_NRI)
        metafunc.parametrize("cluster", guests, indirect=True, ids=str, scope="session")


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The guest alone, one after the other."""
    spec = ClusterSpec(
        nodes=0,
        guest=True,
        guest_cgroups=request.param.driver,
        release=request.param.release,
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
def evidence() -> Iterator[Evidence]:
    """What all tests of the run found."""
    found = Evidence()
    yield found
    found.write(CHECKOUT / "build" / "node.json")


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
