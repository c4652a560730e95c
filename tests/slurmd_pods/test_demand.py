"""Tests of a pool's metrics about waiting jobs and Pods. The metrics are correct even if the pool has no
nodes."""

from __future__ import annotations

import time

import pytest

from tests.eventually import eventually
from tests.slurmd_pods.world import NODES, World, pools

pytestmark = pytest.mark.real

NOTHING = {"jobs": 0.0, "nodes": 0.0, "cpus": 0.0, "gpus": 0.0}
ROUND_S = 16.0  # seconds in which the extender reads Slurm's jobs at least once


def pending(world: World) -> dict[str, float]:
    """Returns the waiting amounts by resource; empty if the pool reports no amounts."""
    prefix = "slurm_extender_pool_pending_"
    told = world.metric(prefix)
    return {key.removeprefix(prefix).partition("{")[0]: value for key, value in told.items()}


def few_nodes(world: World) -> list[int]:
    """Leaves the pool with few nodes, and returns the job that makes them busy. Slurm 26.05 gets no
    nodes and no job. Slurm 24.11 gets one node and the job that occupies it, because 24.11.5 rejects
    every job for a partition without nodes (Slurm's ticket 22065)."""
    refuses = world.cluster.spec.release == "24.11"
    nodes = NODES[:1] if refuses else []
    world.label(*nodes)
    eventually(lambda: list(world.states()) == nodes, f"the pool has {nodes}", 60)
    if not refuses:
        return []
    job = world.sbatch(300, "--exclusive")
    eventually(lambda: world.runs(job), "the job that has the node runs", 30)
    return [job]


def test_a_pool_without_partitions_reports_no_waiting_jobs(world: World) -> None:
    time.sleep(1)
    assert pending(world) == {}


def test_jobs_that_wait_for_nodes_are_reported_until_they_run(world: World) -> None:
    """A native job, a job array and a gated Pod wait for nodes, and count. A held job and a job with a
    later start time do not count."""
    world.write(pools(partitions=["dynamic"]))
    others = few_nodes(world)
    others += [world.sbatch(1, "-n", "2", when) for when in ("--hold", "--begin=now+1hour")]
    job = world.sbatch(1, "-n", "3")
    array = world.sbatch(1, "--array=0-3", "--gpus=1")
    world.actors.create("p", cpu="2", gpus=2, annotations={"partition": "dynamic"})
    expected = {"jobs": 6.0, "nodes": 6.0, "cpus": 9.0, "gpus": 6.0}
    eventually(lambda: pending(world) == expected, f"{expected} wait", 60)
    world.label(*NODES)
    world.all_serve(*NODES)
    world.actors.bound("p")
    for each in (job, array):
        eventually(lambda each=each: world.completed(each), "the job has run", 60)  # type: ignore[misc]
    eventually(lambda: pending(world) == NOTHING, "nothing waits any more", 2 * ROUND_S)
    world.cluster.run_slurm("scancel", *map(str, others))
