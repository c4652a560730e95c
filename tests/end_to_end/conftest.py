"""Fixtures of the end-to-end tests: a real cluster for each release of Slurm. Each test starts the
extender that the test needs."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.layout import Layout
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from tests.end_to_end import brief_extender
from tests.end_to_end.actors import Actors
from tests.end_to_end.state_loss import PARTITION, open_partition


@pytest.fixture(scope="session", params=list(DEBIAN_SUITES))
def slurm_release(request: pytest.FixtureRequest) -> str:
    """Returns a release of Slurm. All tests run on a release before the next release starts."""
    return str(request.param)


@pytest.fixture(scope="session")
def cluster(slurm_release: str) -> Iterator[Cluster]:
    """Starts a cluster of four nodes with 8 CPUs and 4 GPUs, and with Slurm's default KillWait."""
    spec = ClusterSpec(nodes=4, release=slurm_release, validates_pods=True, kill_wait=30)
    with (
        tempfile.TemporaryDirectory(prefix="e2e-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def all_actors(cluster: Cluster) -> Iterator[Actors]:
    actors = Actors(cluster)
    yield actors
    actors.close()


@pytest.fixture
def actors(all_actors: Actors) -> Iterator[Actors]:
    """Actors of a cluster with a running extender. After the test, all Pods and jobs end."""
    all_actors.begin()
    if not all_actors.cluster.is_running("extender"):
        all_actors.cluster.start("extender")
    yield all_actors
    all_actors.clean_up()


@pytest.fixture
def quiet(all_actors: Actors) -> Iterator[Actors]:
    """Actors of a cluster without a running extender."""
    all_actors.begin()
    if all_actors.cluster.is_running("extender"):
        all_actors.cluster.stop("extender")
    yield all_actors
    if not all_actors.cluster.is_running("extender"):
        all_actors.cluster.start("extender")
    all_actors.clean_up()


@pytest.fixture
def brief(quiet: Actors) -> Iterator[Actors]:
    """Actors of a cluster with shorter waiting times of the extender."""
    quiet.cluster.start("extender", argv=brief_extender.ARGV)
    yield quiet
    quiet.cluster.stop("extender")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the end of the extender's log to the report of a failed test."""
    report = yield
    actors = getattr(item, "funcargs", {}).get("all_actors")
    if report.failed and report.when != "teardown" and isinstance(actors, Actors):
        log = actors.cluster.logs / "extender.log"
        if log.exists():  # the cluster may be gone already
            report.sections.append(("extender.log", log.read_text()[-6000:]))
    return report


@pytest.fixture
def closed(actors: Actors) -> Iterator[Actors]:
    """Closes the partition in slurm.conf, as an administrator does before slurmctld starts. After the
    test, the partition is open again."""
    conf = Layout(actors.cluster.directory).slurm / "etc/slurm.conf"
    before = conf.read_text()
    line = next(line for line in before.splitlines() if line.startswith(PARTITION))
    conf.write_text(before.replace(line, line.replace("State=UP", "") + " State=DOWN"))
    yield actors
    conf.write_text(before)
    open_partition(actors)
