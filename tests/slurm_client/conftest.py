"""One real Slurm for all tests of this folder, and the bench that the contract runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from slurm_client.rest import SlurmRest
from tests.slurm_client.bench import (
    CPUS,
    EXTRA_CONF,
    FEATURES,
    GPUS,
    MEMORY_MB,
    NODES,
    Bench,
    InMemoryBench,
    RealBench,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    spec = ClusterSpec(
        nodes=len(NODES),
        cpus_per_node=CPUS,
        memory_mb=MEMORY_MB,
        gpus_per_node=GPUS,
        kubernetes=False,
        extender=False,
        kill_wait=5,
        slurm_conf=EXTRA_CONF,
    )
    with Cluster.up(spec, tmp_path_factory.mktemp("slurm")) as running:
        for name, features in FEATURES.items():
            text = ",".join(features)
            running.run_slurm(
                "scontrol",
                "update",
                f"NodeName={name}",
                f"AvailableFeatures={text}",
                f"ActiveFeatures={text}",
            )
        yield running


@pytest.fixture
async def rest(cluster: Cluster) -> AsyncIterator[SlurmRest]:
    slurm = SlurmRest(cluster.slurmrestd_url, cluster.token_file)
    yield slurm
    await slurm.aclose()


@pytest.fixture
async def real_bench(rest: SlurmRest, cluster: Cluster) -> AsyncIterator[RealBench]:
    bench = RealBench(rest, cluster)
    yield bench
    await bench.clear()


@pytest.fixture(params=["in_memory", pytest.param("real", marks=pytest.mark.real)])
def bench(request: pytest.FixtureRequest) -> Bench:
    if request.param == "in_memory":
        return InMemoryBench()
    found = request.getfixturevalue("real_bench")
    assert isinstance(found, RealBench)
    return found
