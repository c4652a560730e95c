"""Contract tests of jobs with packed tasks, for gangs: several members on a node, each with its own
amounts.

The facts are measured on 24.11 and 26.05, and hold for the Slurm in memory.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from slurm_client import gres
from slurm_client.errors import InvalidRequest, NoRoomNow, SlurmError
from slurm_client.model import Job
from tests.slurm_client.bench import CPUS, GPUS, MEMORY_MB, NODES, Bench
from wellknown import number_list


def tasks_on_each(job: Job, cpus: int) -> list[int]:
    """Returns the number of tasks for which the job has cores, on each node."""
    return [len(number_list.expand(cores)) // cpus for cores in job.cores]


async def test_tasks_are_packed_onto_as_few_nodes_as_possible(bench: Bench) -> None:
    job = await bench.allocate(tasks=4, cpus=2, memory_mb=500)
    assert (len(job.nodes), job.cpus_allocated) == (1, CPUS)
    assert job.memory_allocated_mb == (2000,)
    assert (job.tasks, job.memory_per_cpu_mb) == (4, 250)


async def test_the_last_node_has_fewer_tasks(bench: Bench) -> None:
    """A node of eight CPUs has room for two tasks of three CPUs."""
    job = await bench.allocate(tasks=3, cpus=3, memory_mb=300)
    assert sorted(tasks_on_each(job, 3)) == [1, 2]
    assert sorted(job.memory_allocated_mb) == [300, 600]
    with pytest.raises(NoRoomNow):
        await bench.allocate(tasks=3, cpus=3, memory_mb=300)


async def test_each_node_has_the_devices_of_its_tasks(bench: Bench) -> None:
    job = await bench.allocate(tasks=3, cpus=1, memory_mb=100, gres=(("gpu", 2),))
    devices = [gres.numbers(each)["gpu"] for each in job.gres]
    assert sorted(map(len, devices)) == [2, GPUS]
    assert [len(own) // 2 for own in devices] == tasks_on_each(job, 1)
    assert job.tres_per_task == "gres/gpu:2"
    assert job.gpus == 6


async def test_nodes_is_the_lowest_number_of_nodes(bench: Bench) -> None:
    job = await bench.allocate(tasks=3, nodes=2, cpus=1, memory_mb=100)
    assert job.nodes == NODES
    assert sum(tasks_on_each(job, 1)) == 3


async def test_a_job_has_all_tasks_or_does_not_start(bench: Bench) -> None:
    held = await bench.allocate(cpus=CPUS - 1)
    job_id = await bench.submit(tasks=5, cpus=2, memory_mb=100)
    await bench.until_waiting_for(job_id, "Resources")
    waiting = await bench.read(job_id)
    assert (waiting.tasks, waiting.cpus_allocated, waiting.nodes) == (5, 10, ())
    await bench.slurm.cancel(held.id)
    job = await bench.until_running(job_id)
    assert sum(tasks_on_each(job, 2)) == 5


async def test_tasks_that_never_fit_together_are_refused(bench: Bench) -> None:
    """26.05 refuses only immediate allocations: a submitted job waits (PartitionConfig)."""
    with pytest.raises(SlurmError):
        await bench.allocate(tasks=5, cpus=4, memory_mb=100)
    with pytest.raises(InvalidRequest):
        await bench.allocate(tasks=2, cpus=1, memory_mb=2 * MEMORY_MB)


@pytest.mark.parametrize("name", ["shard", "shard:h100"])
async def test_parts_of_gpus_are_refused(bench: Bench, name: str) -> None:
    with pytest.raises(InvalidRequest, match="parts of GPUs"):
        await bench.allocate(tasks=2, gres=((name, 1),))


@pytest.mark.parametrize("more", [{"nodes": 3}, {"tasks": 0}, {"required_nodes": ("node-1",)}])
async def test_more_nodes_than_tasks_and_named_nodes_are_refused(
    bench: Bench, more: Mapping[str, Any]
) -> None:
    with pytest.raises(InvalidRequest, match="packed tasks cannot"):
        await bench.allocate(**{"tasks": 2, **more})


async def test_memory_is_rounded_up_to_each_cpu(bench: Bench) -> None:
    job = await bench.allocate(tasks=2, cpus=3, memory_mb=1000)
    assert sum(job.memory_allocated_mb) == 2 * 1002


async def test_each_task_runs_on_the_node_that_the_job_names_for_it(bench: Bench) -> None:
    one, other = NODES
    job = await bench.allocate(
        tasks=4, required_nodes=(one, other, other, other), cpus=1, memory_mb=100, gres=(("gpu", 1),)
    )
    assert job.nodes == NODES
    assert tasks_on_each(job, 1) == [1, 3]
    assert [len(gres.numbers(each)["gpu"]) for each in job.gres] == [1, 3]
    assert job.cpus == (1, 3)
    assert set(job.required_nodes) == set(NODES)


async def test_a_job_waits_for_the_node_that_the_job_names_for_its_task(bench: Bench) -> None:
    held = await bench.allocate(cpus=CPUS, required_nodes=NODES[:1])
    job_id = await bench.submit(tasks=2, required_nodes=NODES, cpus=1, memory_mb=100)
    await bench.until_waiting_for(job_id, "Resources")
    await bench.slurm.cancel(held.id)
    job = await bench.until_running(job_id)
    assert tasks_on_each(job, 1) == [1, 1]
