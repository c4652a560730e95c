"""Fixtures of the contract tests: one real Slurm of each release for all tests of this folder, and the
benches."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from typing import TypeVar

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from loadtest.slurmrestd_stub.routes import serving
from slurm_client.in_memory import Accounting
from slurm_client.rest.client import SlurmRest
from slurm_client.tokens import StaticToken
from tests.slurm_client.bench import (
    ACCOUNTING,
    ALONE,
    EXTRA_CONF,
    FEATURES,
    JOB_SUBMIT_LUA,
    NODES,
    SIZES,
    Bench,
    InMemoryBench,
    RealBench,
    declare,
)

RELEASES = tuple(DEBIAN_SUITES)
REAL = [pytest.param(one, marks=pytest.mark.real) for one in RELEASES]
_InMemory = TypeVar("_InMemory", bound=InMemoryBench)
# A token for the stub: an unsigned JWT with the claim {"sun": "root"}.
ROOTS_TOKEN = "e30.eyJzdW4iOiAicm9vdCJ9."
# Slurms in memory; True if the Slurm has EXTERNAL_JOB.
IN_MEMORY = {"in_memory": True, "in_memory_without_external_jobs": False}


@pytest.fixture(scope="session")
def cluster_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, bool], Cluster]]:
    """Yields a function that returns the cluster of a release, with or without accounting. The first
    call for a cluster starts the cluster."""
    with ExitStack() as running:

        @cache
        def started(release: str, accounting: bool) -> Cluster:
            directory = tmp_path_factory.mktemp(f"slurm-{release}-")
            spec = ClusterSpec(
                release=release,
                accounting=accounting,
                nodes=len(NODES),
                slurm_conf=EXTRA_CONF,
                job_submit_lua=JOB_SUBMIT_LUA,
                **SIZES,
                **ALONE,
            )
            cluster = running.enter_context(Cluster.up(spec, directory))
            _set_features(cluster)
            if accounting:
                declare(cluster, ACCOUNTING)
            return cluster

        yield started


@pytest.fixture(scope="session", params=RELEASES)
def cluster(request: pytest.FixtureRequest, cluster_of: Callable[[str, bool], Cluster]) -> Cluster:
    return cluster_of(request.param, False)


@pytest.fixture
async def rest(cluster: Cluster) -> AsyncIterator[SlurmRest]:
    slurm = SlurmRest(cluster.slurmrestd_url, cluster.token_file)
    yield slurm
    await slurm.aclose()


@pytest.fixture
async def real_bench(cluster: Cluster) -> AsyncIterator[RealBench]:
    async with real_bench_of(cluster) as bench:
        yield bench


@pytest.fixture(params=[*IN_MEMORY, "stub", *REAL])
async def bench(
    request: pytest.FixtureRequest, cluster_of: Callable[[str, bool], Cluster]
) -> AsyncIterator[Bench]:
    async with bench_of(request.param, cluster_of, None) as found:
        yield found


@pytest.fixture(params=["in_memory", "stub", *REAL])
async def office(
    request: pytest.FixtureRequest, cluster_of: Callable[[str, bool], Cluster]
) -> AsyncIterator[Bench]:
    """A bench with accounting. The Slurm is in memory, a stub, or real."""
    async with bench_of(request.param, cluster_of, ACCOUNTING) as found:
        yield found


@pytest.fixture(params=REAL)
async def real_office(
    request: pytest.FixtureRequest, cluster_of: Callable[[str, bool], Cluster]
) -> AsyncIterator[RealBench]:
    async with real_bench_of(cluster_of(request.param, True)) as found:
        yield found


@asynccontextmanager
async def bench_of(
    kind: str, cluster_of: Callable[[str, bool], Cluster], accounting: Accounting | None
) -> AsyncIterator[Bench]:
    if kind in IN_MEMORY:
        yield InMemoryBench(external_jobs=IN_MEMORY[kind], accounting=accounting)
    elif kind == "stub":
        async with through_the_stub(InMemoryBench(accounting=accounting)) as stubbed:
            yield stubbed
    else:
        async with real_bench_of(cluster_of(kind, accounting is not None)) as found:
            yield found


@asynccontextmanager
async def through_the_stub(bench: _InMemory) -> AsyncIterator[_InMemory]:
    """Yields a bench with the same Slurm in memory, but the client calls this Slurm over HTTP through
    the stub of slurmrestd."""
    async with serving(bench.controls) as url:
        slurm = SlurmRest(url, StaticToken(ROOTS_TOKEN))
        await slurm.connect()
        bench.slurm = slurm
        yield bench
        await slurm.aclose()


@asynccontextmanager
async def real_bench_of(cluster: Cluster) -> AsyncIterator[RealBench]:
    """Yields a bench with a real Slurm, and cancels all jobs at the end."""
    slurm = SlurmRest(cluster.slurmrestd_url, cluster.token_file)
    await slurm.connect()
    if not any(node.features for node in await slurm.nodes()):
        _set_features(cluster)  # a restart of slurmctld loses these settings of scontrol
    bench = RealBench(slurm, cluster)
    yield bench
    await bench.clear()
    await slurm.aclose()


def _set_features(cluster: Cluster) -> None:
    for name, features in FEATURES.items():
        text = ",".join(features)
        changes = (f"AvailableFeatures={text}", f"ActiveFeatures={text}")
        cluster.run_slurm("scontrol", "update", f"NodeName={name}", *changes)
