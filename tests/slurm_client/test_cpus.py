"""Tests of the number of CPUs that a job gets, on nodes that declare their CPUs in different ways.

The tests confirm the table in docs/concepts/resources.md with each Slurm, on nodes with a slurmd, and on
EXTERNAL nodes.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from math import prod
from typing import Any

import pytest

from deploy.local.spec import ClusterSpec
from slurm_client.errors import SlurmError
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.model import JobSpec
from slurm_client.protocol import Slurm
from tests.eventually import until
from tests.slurm_client.bench import Bench, slurm_of
from wellknown import number_list

BY_CPU = ("SelectTypeParameters=CR_CPU_Memory",)


@dataclass(frozen=True)
class Shape:
    """A node of 8 logical CPUs: how Slurm's configuration declares the node, and how many CPUs jobs then
    get."""

    declares: Mapping[str, Any]
    gets: Mapping[int, tuple[int, int]]
    """By the number of requested CPUs: the number of CPUs that Slurm shows for the job, and the number
    that Slurm shows as allocated on the node."""
    jobs: int
    """Number of jobs that fit on the node, if each job requests one CPU."""
    releases: tuple[str, ...] = ("26.05", "24.11")
    in_memory: Mapping[str, Any] | None = field(default_factory=dict)


SHAPES = {
    "cores of one thread": Shape({}, {1: (1, 1), 3: (3, 3), 8: (8, 8)}, 8),
    "threads": Shape(
        {"threads_per_core": 2},
        {1: (2, 2), 2: (2, 2), 3: (4, 4), 5: (6, 6), 8: (8, 8)},
        4,
        in_memory={"cores": 4, "threads_per_core": 2},
    ),
    "threads, EXTERNAL": Shape(
        {"threads_per_core": 2, "nodes": 0, "external_nodes": 1},
        {1: (2, 2), 3: (4, 4), 8: (8, 8)},
        4,
        releases=("26.05",),
        in_memory=None,
    ),
    "threads, by CPU": Shape(
        {"threads_per_core": 2, "slurm_conf": BY_CPU},
        {1: (1, 2), 2: (2, 2), 3: (3, 4), 5: (5, 6), 8: (8, 8)},
        4,
        in_memory=None,
    ),
    "cores of two threads": Shape(
        {"threads_per_core": 2, "slurm_cpus_per_node": 4},
        {1: (1, 1), 3: (3, 3), 4: (4, 4)},
        4,
        in_memory={"cpus": 4, "cores": 4, "threads_per_core": 2},
    ),
    "tenths": Shape(
        {"slurm_cpus_per_node": 80}, {1: (1, 1), 3: (3, 3), 80: (80, 80)}, 80, in_memory={"cpus": 80}
    ),
}
WHERE = [
    pytest.param(shape, release, id=f"{name}-{release}", marks=pytest.mark.real)
    for name, shape in SHAPES.items()
    for release in shape.releases
] + [
    pytest.param(shape, None, id=f"{name}-in memory")
    for name, shape in SHAPES.items()
    if shape.in_memory is not None
]


@pytest.mark.parametrize(("shape", "release"), WHERE)
async def test_a_job_gets_whole_cores(shape: Shape, release: str | None) -> None:
    async with shaped(shape, release) as bench:
        for asked, (has, given) in shape.gets.items():
            job = await bench.read(await allocate(bench, asked))
            assert (asked, job.cpus_allocated) == (asked, has)
            assert (asked, await given_away(bench.slurm)) == (asked, given)
            (one,) = (node for node in await bench.slurm.nodes() if node.name == job.nodes[0])
            assert len(number_list.expand(job.cores[0])) == given // one.cpus_per_core
            if release is not None:
                assert prod(map(int, job.sockets[0].split("x"))) == one.cores
                grant = await bench.slurm.grant(job.id)
                assert grant is not None
                assert grant.sockets == job.sockets
            await bench.slurm.cancel(job.id)
            await until(lambda: room_for_jobs(bench.slurm), within_s=15)
        assert await fill(bench) == shape.jobs
        for one in await bench.slurm.nodes():
            assert one.cpus_per_core == shape.gets[1][1]
        whole = sum(one.cpus for one in await bench.slurm.nodes() if one.cpus_allocated)
        assert await given_away(bench.slurm) == whole


async def fill(bench: Bench) -> int:
    """Allocates jobs with one CPU each until Slurm refuses a job. Returns the number of allocated
    jobs."""
    for placed in count():
        try:
            await allocate(bench, 1)
        except SlurmError:
            return placed
    raise AssertionError


async def allocate(bench: Bench, cpus: int) -> int:
    return await bench.slurm.allocate(JobSpec("cpus", cpus=cpus, memory_mb=10), next(bench.ids))


async def given_away(slurm: Slurm) -> int:
    return sum(one.cpus_allocated for one in await slurm.nodes())


async def room_for_jobs(slurm: Slurm) -> bool:
    """Returns True if no node has allocated CPUs or completing jobs. Slurm reports CPUs as free a moment
    before the node accepts the next job."""
    nodes = await slurm.nodes()
    return not any(one.cpus_allocated or "COMPLETING" in one.states for one in nodes)


@asynccontextmanager
async def shaped(shape: Shape, release: str | None) -> AsyncIterator[Bench]:
    """Yields a Slurm whose only node has this shape."""
    if release is None:
        one = replace(node("n1", cpus=8), **(shape.in_memory or {}))
        yield Bench(InMemorySlurm([one], [partition("main", ["n1"], default=True)]))
        return
    size: dict[str, Any] = {"nodes": 1, "cpus_per_node": 8, "gpus_per_node": 0, **shape.declares}
    spec = ClusterSpec(release=release, kubernetes=False, extender=False, kill_wait=5, **size)
    async with slurm_of(spec) as slurm:
        yield Bench(slurm)
