"""A real cluster of each Slurm for all end-to-end tests; each test starts the extender that it wants."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from tests.end_to_end.people import People


@pytest.fixture(scope="session", params=list(DEBIAN_SUITES))
def slurm_release(request: pytest.FixtureRequest) -> str:
    """One release after the other."""
    return str(request.param)


@pytest.fixture(scope="session")
def cluster(slurm_release: str) -> Iterator[Cluster]:
    """Four nodes of 8 CPUs and 4 GPUs, and Slurm's own default of KillWait."""
    spec = ClusterSpec(nodes=4, release=slurm_release, validates_pods=True, kill_wait=30)
    with (
        tempfile.TemporaryDirectory(prefix="e2e-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def everybody(cluster: Cluster) -> Iterator[People]:
    people = People(cluster)
    yield people
    people.close()


@pytest.fixture
def people(everybody: People) -> Iterator[People]:
    """The people of a cluster with a running extender; they leave it empty."""
    everybody.begin()
    if not everybody.cluster.is_running("extender"):
        everybody.cluster.start("extender")
    yield everybody
    everybody.clean_up()


@pytest.fixture
def quiet(everybody: People) -> Iterator[People]:
    """The people of a cluster on which no extender runs yet."""
    everybody.begin()
    if everybody.cluster.is_running("extender"):
        everybody.cluster.stop("extender")
    yield everybody
    if not everybody.cluster.is_running("extender"):
        everybody.cluster.start("extender")
    everybody.clean_up()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure comes with the end of the extender's log."""
    report = yield
    people = getattr(item, "funcargs", {}).get("everybody")
    if report.failed and report.when != "teardown" and isinstance(people, People):
        log = people.cluster.logs / "extender.log"
        if log.exists():  # the cluster may be gone already
            report.sections.append(("extender.log", log.read_text()[-6000:]))
    return report
