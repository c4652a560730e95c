"""Fixtures of the tests on a Node: a cluster for each driver of cgroups, with the guest as the only
node. Each test leaves the node empty."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy.local.cluster import Cluster
from deploy.local.guest.nodes import GPU
from deploy.local.layout import CHECKOUT
from deploy.local.progress import Stopwatch
from deploy.local.spec import CGROUP_DRIVERS, DEFAULT_RELEASE, ClusterSpec
from tests.end_to_end.actors import Actors
from tests.node.boot import brought_up
from tests.node.evidence import Evidence
from tests.node.real_node import RealNode
from tests.slurmd_pods.world import POWER_SAVING

_LOGS = ("guest", "kubelet", "node-agent", "extender", "slurmctld", "slurmd-guest")


class Guest(NamedTuple):
    """A release of Slurm, with the other packages of the same Debian release, and a driver of
    cgroups."""

    release: str
    driver: str
    resources: tuple[tuple[str, str], ...] = ((GPU, "gpu"),)
    """Extended resources that are GRES in Slurm."""
    in_pool: bool = False
    """True if slurmd runs in a Pod."""
    nri: bool = False
    """True if containerd has NRI even with Slurm 24.11."""

    def __str__(self) -> str:
        vendors = {name.partition("/")[0] for name, _ in self.resources if name != GPU}
        more = [name for name, on in (("pool", self.in_pool), ("nri", self.nri)) if on]
        return "-".join([self.release, self.driver, *sorted(vendors), *more])


WITH_NRI = tuple(Guest(DEFAULT_RELEASE, driver) for driver in CGROUP_DRIVERS)
WITHOUT_NRI = (Guest("24.11", "systemd"),)
"""Guests with containerd 1.7."""
_IN_POOL: dict[str, Any] = {
    "guest_in_pool": True,
    "gate": True,
    "pools": "{controllers: [slurmctld:6817], pools: []}",
    "slurm_conf": ("ReturnToService=2", *POWER_SAVING),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs each test on the guests of the test's module."""
    if "cluster" in metafunc.fixturenames:
        guests = getattr(metafunc.module, "GUESTS", WITH_NRI)
        metafunc.parametrize("cluster", guests, indirect=True, ids=str, scope="session")


def _say(config: pytest.Config, guest: Guest, line: str) -> None:
    """Writes a line to the output of the run directly, because pytest shows the output of a fixture only
    after failures."""
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled():
        terminal.write_line(f"{guest}: {line}")
        terminal.flush()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Runs one cluster at a time, with the guest alone."""
    report = Stopwatch(partial(_say, request.config, request.param))
    spec = ClusterSpec(
        nodes=0,
        guest=True,
        guest_cgroups=request.param.driver,
        release=request.param.release,
        guest_nri=request.param.nri,
        memory_mb=4000,
        kill_wait=30,
        extender_settings=(("GRES", json.dumps(dict(request.param.resources))),),
        **(_IN_POOL if request.param.in_pool else {}),
    )
    with tempfile.TemporaryDirectory(prefix="node-") as directory:
        up = partial(Cluster.up, spec, Path(directory), report=report)
        with brought_up(up, report) as running:
            yield running


@pytest.fixture(scope="session")
def evidence() -> Iterator[Evidence]:
    """Collects the results of all tests of the run, and writes build/node.json."""
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
    """The guest as a Node, with all programs running."""
    all_nodes.begin()
    yield all_nodes
    all_nodes.clean_up()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the last lines of the logs to the report of a failed test."""
    report = yield
    node = getattr(item, "funcargs", {}).get("all_nodes")
    if report.failed and isinstance(node, RealNode):
        for name in _LOGS:
            log = node.cluster.logs / f"{name}.log"
            if log.exists():  # the cluster may be gone already
                report.sections.append((log.name, log.read_text(errors="replace")[-3000:]))
    return report
