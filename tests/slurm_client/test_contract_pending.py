"""Contract tests of pending jobs: their reasons and their requests."""

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from slurm_client.errors import InvalidRequest
from tests.eventually import until
from tests.slurm_client.bench import CPUS, FEATURES, GPUS, NODES, Bench, RealBench


async def test_all_states_count_waiting_jobs_without_running_jobs(bench: Bench) -> None:
    runs = await bench.fill()
    waits = await bench.submit(gres=(("gpu", 1),))
    held = await bench.submit(priority=0)
    assert (await bench.slurm.all_states()).waiting == {waits: 1, held: 1}
    for job_id in runs:
        await bench.slurm.cancel(job_id)
    await bench.until_running(waits)
    assert (await bench.slurm.all_states()).waiting == {held: 1}


async def test_a_waiting_job_has_its_partition_reason_and_size(bench: Bench) -> None:
    await bench.fill()
    wanted = (("gpu:h100", 2),)
    job_id = await bench.submit(cpus=3, nodes=2, gres=wanted, partition="short", time_limit_minutes=1)
    await bench.until_waiting_for(job_id, "Resources", "Priority")
    job = await bench.read(job_id)
    assert job.partition == "short"
    assert (job.node_count, job.cpus_allocated, job.gpus) == (2, 6, 4)
    assert (job.held, job.reservation, job.required_nodes) == (False, "", ())
    assert job.more_tasks is None


async def test_slurmctld_holds_a_job_whose_feature_no_node_has_any_more(bench: Bench) -> None:
    """If the feature returns, slurmctld still holds the job."""
    await bench.fill()
    job_id = await bench.submit(gres=(("gpu", 1),), constraints="ib")
    await bench.until_waiting_for(job_id, "Resources", "Priority")
    try:
        bench.set_features(NODES[0], ["h100"])
        await bench.until_waiting_for(job_id, "BadConstraints")
    finally:
        bench.set_features(NODES[0], FEATURES[NODES[0]])
    assert (await bench.read(job_id)).held
    await bench.until_waiting_for(job_id, "BadConstraints")


async def test_a_job_that_is_larger_than_its_partition_waits(bench: Bench) -> None:
    """In a partition without nodes, every job is too large, and waits. 24.11.5 refuses such jobs
    (Slurm's ticket 22065, fixed in 24.11.6)."""
    for nodes, cpus in ((len(NODES), CPUS + 1), (len(NODES) + 1, 1)):
        with suppress(InvalidRequest):
            job_id = await bench.submit(nodes=nodes, cpus=cpus)
            assert (await bench.read(job_id)).reason in {"PartitionConfig", "PartitionNodeLimit"}
            assert job_id in (await bench.slurm.all_states()).waiting


@pytest.fixture
async def native(real_bench: RealBench) -> AsyncIterator[RealBench]:
    """A bench that cancels all native jobs after the test. `RealBench.clear` does not cancel arrays."""
    yield real_bench
    real_bench.cluster.run_slurm("scancel", "--name=native")


@pytest.mark.real
class TestNativeJobs:
    """Tests of native jobs."""

    def submit(self, bench: RealBench, *options: str) -> int:
        batch = ("sbatch", "--parsable", "-J", "native", "-o", "/dev/null", "--mem=100")
        return int(bench.cluster.run_slurm(*batch, *options, "--wrap=sleep 300").stdout)

    async def test_waiting_array_tasks_are_counted_under_the_id_of_their_array(
        self, native: RealBench
    ) -> None:
        await native.fill()
        array = self.submit(native, "--array=0-4,7,100-102", f"--gres=gpu:{GPUS}")
        assert (await native.slurm.all_states()).waiting == {array: 9}
        job = await native.read(array)
        assert (job.state.pending, job.gpus, job.more_tasks) == (True, GPUS, None)

    async def test_an_array_with_a_limit_shows_how_many_more_tasks_may_run(
        self, native: RealBench
    ) -> None:
        """A placeholder uses node-2. The first task takes three of four GPUs of node-1, so a second task
        must wait."""
        await native.allocate(gres=(("gpu", GPUS),), required_nodes=(NODES[1],))
        array = self.submit(native, "--array=0-9%3", f"--gres=gpu:{GPUS - 1}")

        async def one_runs() -> bool:
            return (await native.slurm.all_states()).waiting.get(array) == 9

        await until(one_runs, within_s=15)
        job = await native.read(array)
        assert (job.more_tasks, job.begun_tasks) == (2, 1)

    async def test_a_job_lists_all_its_partitions(self, native: RealBench) -> None:
        await native.fill()
        job_id = self.submit(native, "-p", "main,short", "-t", "1", "--gres=gpu:1")
        assert (await native.read(job_id)).partition.split(",") == ["main", "short"]

    @pytest.mark.parametrize(
        "options",
        [
            ("--gpus=6", "-N2"),
            ("--gpus-per-node=3", "-N2"),
            ("--gpus-per-task=2", "-n3", "-N2"),
            ("--gpus-per-socket=3", "--sockets-per-node=1", "-N2"),
        ],
        ids=str,
    )
    async def test_gpus_are_counted_for_each_way_to_request_them(
        self, native: RealBench, options: tuple[str, ...]
    ) -> None:
        await native.fill()
        job = await native.read(self.submit(native, *options))
        assert (job.state.pending, job.node_count, job.gpus) == (True, 2, 6)
