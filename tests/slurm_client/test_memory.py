"""Tests of a real Slurm and a Slurm in memory with SelectTypeParameters=CR_Core, which does not count
memory: the reported configuration, and the grants of jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from slurm_client.in_memory import DEFAULTS, InMemorySlurm, node, partition
from slurm_client.model import JobSpec
from slurm_client.protocol import Slurm
from slurm_client.server import counts_memory
from tests.slurm_client.bench import slurm_of

NODE_MB = 16_000
ALL_MEMORY = JobSpec("all of it", cpus=1, memory_mb=NODE_MB)


@asynccontextmanager
async def without_memory(release: str) -> AsyncIterator[Slurm]:
    """Yields a Slurm with one node: real, or in memory if `release` is empty."""
    if not release:
        told = replace(DEFAULTS, select_type_parameters=("CR_CORE",))
        nodes = [node("node-1", cpus=8, memory_mb=NODE_MB)]
        yield InMemorySlurm(nodes, [partition("main", ["node-1"], default=True)], configuration=told)
        return
    spec = ClusterSpec(
        release=release,
        nodes=1,
        memory_mb=NODE_MB,
        kubernetes=False,
        extender=False,
        slurm_conf=("SelectTypeParameters=CR_Core",),
    )
    async with slurm_of(spec) as slurm:
        yield slurm


@pytest.mark.parametrize(
    "release", ["", *(pytest.param(one, marks=pytest.mark.real) for one in DEBIAN_SUITES)]
)
async def test_two_jobs_get_all_memory_of_a_node_if_memory_is_not_counted(release: str) -> None:
    async with without_memory(release) as slurm:
        told = await slurm.configuration()
        if slurm.capabilities.configuration:
            assert not counts_memory(told.select_type_parameters or ())
        for job_id in (40_000_001, 40_000_002):
            await slurm.allocate(ALL_MEMORY, job_id)
            job = await slurm.job(job_id)
            assert job is not None
            assert (job.state.running, job.memory_mb) == (True, NODE_MB)
            assert sum(job.grant.memory_mb) == 0
        assert [one.memory_allocated_mb for one in await slurm.nodes()] == [0]


@pytest.mark.parametrize(
    ("parameters", "counted"),
    [
        (("CR_CORE_MEMORY",), True),
        (("CR_ONE_TASK_PER_CORE", "CR_Socket_Memory"), True),
        (("CR_CPU_MEMORY", "LL_SHARED_GRES"), True),
        (("CR_CORE",), False),
        (("CR_CPU", "CR_PACK_NODES"), False),
        ((), False),
    ],
)
def test_memory_is_counted_by_parameters_that_name_it(
    parameters: tuple[str, ...], counted: bool
) -> None:
    assert counts_memory(parameters) is counted
