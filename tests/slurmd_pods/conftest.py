"""Fixtures of the tests of pools: a shared cluster for each release of Slurm, a fleet of Nodes, and the
results of the run of the tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors
from tests.slurmd_pods.evidence import Evidence
from tests.slurmd_pods.fleet import Fleet
from tests.slurmd_pods.world import IMAGE, NODES, OTHERS, POWER_SAVING, World, pools


@pytest.fixture(scope="session")
def evidence() -> Iterator[Evidence]:
    """Collects the results of all tests of the run, and writes build/pools.json at the end. A parallel
    worker (`make test`) runs only a part of the tests, and writes no file."""
    found = Evidence()
    yield found
    if "PYTEST_XDIST_WORKER" not in os.environ:
        found.write(CHECKOUT / "build" / "pools.json")


def _of_release(release: str) -> ClusterSpec:
    return ClusterSpec(
        release=release,
        nodes=1,
        external_nodes=int(release == "26.05"),
        dynamic_nodes=len(NODES) + len(OTHERS),
        kill_wait=10,
        pools=pools(),
        # The ranks of a step find the PMIx server by a directory in TmpFS. So each slurmd of this
        # machine has its own TmpFS: in a common TmpFS, ranks sometimes connect to the server of another
        # node.
        slurm_conf=(*POWER_SAVING, "ReturnToService=2", "TmpFS=/var/lib/slurm/spool/%n"),
    )


@pytest.fixture(scope="package", params=["26.05", "24.11"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Runs the cluster of a release, or of a spec from a test. Ends the cluster before the next cluster
    starts."""
    asked: str | ClusterSpec = request.param
    spec = _of_release(asked) if isinstance(asked, str) else asked
    with (
        tempfile.TemporaryDirectory(prefix="pools-") as directory,
        Cluster.up(spec, Path(directory)) as found,
    ):
        yield found


@pytest.fixture(scope="package")
def whole(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    actors = Actors(cluster)
    with Fleet(cluster, NODES).running(tmp_path_factory.mktemp("tokens")) as fleet:
        yield World(actors, fleet)
    actors.close()


@pytest.fixture
def world(whole: World) -> Iterator[World]:
    """All four Nodes take jobs. Their pool is the pool of the page's first example."""
    yield from serving(whole, IMAGE)


def serving(whole: World, image: str) -> Iterator[World]:
    """All four Nodes take jobs, with the pool of the page's first example and this image. Cleans up
    after the test."""
    whole.image = image
    whole.actors.begin()
    whole.write(pools(image, update={"maxUnavailable": len(NODES)}))
    whole.label(*NODES)
    whole.all_run(image, 1, within=90)
    whole.all_serve(*NODES)
    whole.write(pools(image))
    yield whole
    whole.actors.clean_up()
    assert whole.fleet.seen.ended_busy == 0
