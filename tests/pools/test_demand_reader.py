"""Tests of the reader that reads jobs from Slurm for the pending demand of pools, and of the cases in
which the demand is unknown."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from extender.node_view.slurm_nodes import SlurmNodes
from extender.node_view.view_updater import ClusterViewUpdater
from extender.pools.demand import Demand
from extender.pools.demand_reader import _AGAIN, _MANY, PART, DemandReader
from extender.pools.pool import Pool
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from slurm_client.errors import OutcomeUnknown, SlurmError, Unreachable, Unreadable
from slurm_client.in_memory import InMemorySlurm, partition
from slurm_client.model import Job, JobChanges, JobSpec
from wellknown.names import NODE_NAME_LABEL

SPEC = JobSpec("native", cpus=2, memory_mb=100, partition="gpu")


class ArraySlurm(InMemorySlurm):
    def __init__(self, *partitions: str) -> None:
        super().__init__([], [partition(name, [], default=name == "cpu") for name in partitions])
        self.fails: dict[int, SlurmError] = {}
        """By job id: the error that a read of the job raises."""
        self.begun: dict[int, int] = {}
        """By the id of an array: the number of tasks that run or have ended."""
        self.limited: dict[int, int] = {}
        """By the id of an array with a limit: the number of further tasks that may run."""

    async def job(self, job_id: int) -> Job | None:
        job = await super().job(job_id)
        if job_id in self.fails:
            raise self.fails[job_id]
        if job is None:
            return None
        begun, more = self.begun.get(job_id, 0), self.limited.get(job_id)
        return replace(job, begun_tasks=begun, more_tasks=more)


class Bench:
    """A Slurm whose partitions have no nodes, so that all jobs wait."""

    def __init__(self) -> None:
        self.slurm, self.health = ArraySlurm("cpu", "gpu"), Health()
        self.pools = [Pool("gpu", {}, partitions=frozenset({"gpu"}))]
        kubernetes = InMemoryKubernetes()
        kubernetes.put("namespaces", {"metadata": {"name": "kube-system"}})
        self.cluster = ClusterViewUpdater(kubernetes, self.slurm, self.health, NODE_NAME_LABEL)
        nodes = SlurmNodes(self.slurm)
        self.reader = DemandReader(self.slurm, nodes, self.cluster, lambda: self.pools, self.health)

    async def submit(self, ids: Iterable[int], spec: JobSpec = SPEC) -> None:
        for job_id in ids:
            await self.slurm.submit(spec, job_id)

    async def known(self) -> Demand | None:
        await self.reader.turn()
        return self.reader.demand.get("gpu")

    async def turn(self) -> tuple[Demand | None, dict[str, int]]:
        """Runs a turn of the reader. Returns the demand after the turn, and how often the reader made
        each kind of read in the turn."""
        self.slurm.reads.clear()
        await self.reader.turn()
        del self.slurm.reads["nodes"]
        return self.reader.demand.get("gpu"), dict(self.slurm.reads)


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    await bench.cluster.load()
    return bench


async def test_pool_without_partitions_causes_no_calls(bench: Bench) -> None:
    bench.pools = [Pool("gpu", {})]
    await bench.submit([1])
    assert await bench.turn() == (None, {})


async def test_demand_of_a_pool_counts_waiting_jobs_of_its_partitions(bench: Bench) -> None:
    await bench.submit([1, 2])
    await bench.submit([3], replace(SPEC, partition="cpu"))
    await bench.submit([4], replace(SPEC, priority=0))
    assert await bench.known() == Demand(jobs=2, nodes=2, cpus=4)
    await bench.slurm.cancel(1)
    assert await bench.known() == Demand(jobs=1, nodes=1, cpus=2)


async def test_new_jobs_are_read_once_and_jobs_of_pools_in_each_turn(bench: Bench) -> None:
    await bench.submit([1, 2])
    await bench.submit([3, 4, 5], replace(SPEC, partition="cpu"))
    assert (await bench.turn())[1] == {"all_states": 1, "job": 5}
    assert (await bench.turn())[1] == {"all_states": 1, "job": 2}
    await bench.submit([6])
    assert (await bench.turn())[1] == {"all_states": 1, "job": 3}


async def test_partition_added_to_a_pool_counts_at_once(bench: Bench) -> None:
    await bench.submit([1], replace(SPEC, partition="cpu"))
    assert (await bench.known()) == Demand()
    bench.pools = [Pool("gpu", {}, partitions=frozenset({"cpu"}))]
    assert (await bench.known()) == Demand(jobs=1, nodes=1, cpus=2)


async def test_number_of_jobs_read_again_in_a_turn_is_limited(bench: Bench) -> None:
    count = _AGAIN + 100
    await bench.submit(range(1, count + 1))
    assert (await bench.turn())[1]["job"] == count
    first, second = [(await bench.turn())[1]["job"] for _ in range(2)]
    assert (first, second) == (_AGAIN, _AGAIN)
    assert (await bench.known()) == Demand(count, count, 2 * count)


async def test_changed_reason_of_a_job_is_noticed(bench: Bench) -> None:
    await bench.submit([1])
    assert await bench.known() == Demand(jobs=1, nodes=1, cpus=2)
    await bench.slurm.update(1, JobChanges(priority=0))
    assert await bench.known() == Demand()


async def test_demand_is_unknown_while_slurm_does_not_answer(bench: Bench) -> None:
    """An autoscaler that saw an outdated demand would add or remove the wrong machines."""
    await bench.submit([1])
    assert await bench.known()
    bench.slurm.outage(Unreachable("gone"))
    assert await bench.known() is None
    bench.slurm.outage(None)
    assert await bench.known() == Demand(jobs=1, nodes=1, cpus=2)


async def test_unreadable_job_does_not_hide_other_jobs(bench: Bench) -> None:
    await bench.submit([1, 2])
    bench.slurm.fails[1] = Unreadable("no number")
    assert await bench.known() == Demand(jobs=1, nodes=1, cpus=2)


async def test_partition_that_slurm_does_not_have_is_reported(bench: Bench) -> None:
    bench.pools = [Pool("gpu", {}, partitions=frozenset({"gpu", "gpus"}))]
    assert await bench.known() == Demand()
    assert bench.health.problems() == {PART: "pool gpu: Slurm has no partition gpus"}
    bench.pools = [Pool("gpu", {}, partitions=frozenset({"gpu"}))]
    await bench.known()
    assert not bench.health.problems()


async def test_array_with_many_started_tasks_is_read_rarely(bench: Bench) -> None:
    """slurmrestd's reply about an array lists all started tasks, so each read is expensive."""
    await bench.submit([1, 2, 3])
    bench.slurm.begun |= {1: _MANY + 1, 2: _MANY}
    assert (await bench.turn())[1]["job"] == 3
    assert (await bench.turn()) == (Demand(jobs=3, nodes=3, cpus=6), {"all_states": 1, "job": 2})


async def test_array_with_a_limit_is_read_until_no_more_tasks_may_start(bench: Bench) -> None:
    await bench.submit([1])
    bench.slurm.begun[1], bench.slurm.limited[1] = _MANY + 1, 1
    assert await bench.known() == Demand(jobs=1, nodes=1, cpus=2)
    bench.slurm.limited[1] = 0
    assert await bench.known() == Demand()
    assert (await bench.turn())[1] == {"all_states": 1}


async def test_job_without_an_answer_does_not_hide_other_jobs(bench: Bench) -> None:
    """If a job cannot be read, the reader uses the values of the last successful read of this job. A job
    that was never read does not count."""
    await bench.submit([1, 2])
    await bench.known()
    await bench.submit([3, 4])
    bench.slurm.fails = {job_id: OutcomeUnknown("silent for 15 s") for job_id in (1, 3)}
    assert await bench.known() == Demand(jobs=3, nodes=3, cpus=6)
    (words,) = bench.health.problems().values()
    assert words == "job 3 cannot be read: silent for 15 s; job 1 cannot be read: silent for 15 s"
    assert PART in bench.health.problems()
    bench.slurm.fails = {}
    assert await bench.known() == Demand(jobs=4, nodes=4, cpus=8)
    assert not bench.health.problems()
    bench.slurm.fails[1] = OutcomeUnknown("silent for 15 s")
    await bench.known()
    bench.pools = []
    await bench.known()
    assert not bench.health.problems()


async def test_demand_is_unknown_if_many_jobs_have_no_answer(bench: Bench) -> None:
    await bench.submit([1, 2, 3, 4])
    await bench.known()
    bench.slurm.fails = {job_id: OutcomeUnknown("silent for 15 s") for job_id in (1, 2, 4)}
    assert await bench.known() is None


async def test_array_without_an_answer_is_not_read_for_a_while(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.submit([1, 2])
    await bench.known()
    bench.slurm.begun[1] = _MANY + 1
    await bench.known()
    bench.slurm.fails[1] = OutcomeUnknown("silent for 15 s")
    monkeypatch.setattr("extender.pools.demand_reader._RESTS_S", 0.0)
    assert (await bench.turn())[1]["job"] == 2
    monkeypatch.setattr("extender.pools.demand_reader._RESTS_S", 0.05)
    assert (await bench.turn())[1]["job"] == 1
    await asyncio.sleep(0.06)
    assert (await bench.turn()) == (Demand(jobs=2, nodes=2, cpus=4), {"all_states": 1, "job": 2})
    assert (await bench.turn())[1]["job"] == 1
