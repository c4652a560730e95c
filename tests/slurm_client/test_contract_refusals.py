"""Contract tests of jobs that Slurm refuses, and of queued jobs that can never start."""

from contextlib import suppress

import pytest

from slurm_client.errors import (
    InvalidRequest,
    JobIdTaken,
    NeedsOperator,
    NoRoomNow,
    RetryLater,
    SlurmError,
    Unexplained,
)
from slurm_client.model import MOST_MINUTES, JobChanges
from tests.slurm_client.bench import CPUS, GPUS, MEMORY_MB, NODES, Bench, spec

# -- job ids chosen by the client


async def test_a_duplicate_id_is_refused_while_the_job_runs_and_after_its_end(bench: Bench) -> None:
    job = await bench.allocate(admin_comment="first")
    for create in (bench.slurm.allocate, bench.slurm.submit):
        with pytest.raises(JobIdTaken):
            await create(spec(), job.id)
    await bench.slurm.cancel(job.id)
    with pytest.raises(JobIdTaken):
        await bench.slurm.submit(spec(admin_comment="second"), job.id)
    assert (await bench.read(job.id)).admin_comment == "first"


# -- impossible jobs


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        ({"partition": "nowhere"}, 2000),
        ({"required_nodes": ("ghost",)}, 2018),
        ({"excluded_nodes": ("ghost",)}, 2018),
        ({"constraints": "quantum"}, 2029),
        ({"constraints": "h100|quantum"}, 2029),
        ({"prefer": "quantum"}, 2133),
        ({"reservation": "nowhere"}, 2053),
        ({"gres": (("qpu", 1),)}, 2072),
        ({"gres": (("gpu", 1), ("gpu:h100", 1))}, 2119),
        ({"gres": (("gpu:a100", 1),)}, 2014),
        ({"gres": (("gpu", GPUS + 1),)}, 2014),
        ({"memory_mb": MEMORY_MB + 1}, 2014),
        ({"cpus": CPUS + 1}, 2014),
        ({"nodes": 2, "constraints": "h100&ib"}, 2014),
        ({"excluded_nodes": NODES}, 2014),
    ],
    ids=str,
)
async def test_an_impossible_job_is_an_invalid_request(
    bench: Bench, wanted: dict[str, object], number: int
) -> None:
    with pytest.raises(InvalidRequest) as submitted:
        await bench.submit(**wanted)
    assert submitted.value.number == number
    with pytest.raises(InvalidRequest) as allocated:
        await bench.allocate(**wanted)
    assert allocated.value.number == number


async def test_an_impossible_job_leaves_a_failed_record_under_its_id(bench: Bench) -> None:
    job_id = next(bench.ids)
    with pytest.raises(InvalidRequest):
        await bench.slurm.submit(spec(memory_mb=MEMORY_MB + 1), job_id)
    job = await bench.read(job_id)
    assert job.state.base == "FAILED"
    assert job.reason == "BadConstraints"


async def test_the_client_rejects_an_unknown_value_of_shared(bench: Bench) -> None:
    job_id = next(bench.ids)
    with pytest.raises(InvalidRequest, match="none, oversubscribe, user, mcs, topo"):
        await bench.slurm.submit(spec(shared="ok"), job_id)
    assert await bench.slurm.job(job_id) is None


@pytest.mark.parametrize(
    "wanted",
    [
        {"user_id": 99},  # Slurm would run the job as root
        {"user_id": 2001, "group_id": 99},
        {"user_id": 2**31 - 1},  # 24.11 would read the id of another user
        {"time_limit_minutes": MOST_MINUTES + 1},
        {"partition": "main\0-of-others"},
        {"comment": "\0"},
        {"current_working_directory": "/tmp\0x"},
    ],
    ids=str,
)
async def test_the_client_rejects_values_that_slurm_would_misread(
    bench: Bench, wanted: dict[str, object]
) -> None:
    job_id = next(bench.ids)
    with pytest.raises(InvalidRequest):
        await bench.slurm.submit(spec(**wanted), job_id)
    assert await bench.slurm.job(job_id) is None


async def test_an_exclusion_with_an_unknown_node_is_refused_or_obeyed(bench: Bench) -> None:
    # 24.11.5 accepts the list, because node-1 exists.
    with suppress(InvalidRequest):
        job = await bench.allocate(excluded_nodes=("ghost", "node-1"))
        assert job.nodes == ("node-2",)


@pytest.mark.parametrize("wanted", [{"cpus": 2 * CPUS + 1}, {"nodes": 3}], ids=str)
async def test_a_job_larger_than_its_partition_waits_or_is_refused(
    bench: Bench, wanted: dict[str, object]
) -> None:
    # 26.05.5 queues the job, because the partition may become larger. 24.11.5 refuses the job.
    with suppress(InvalidRequest):
        job_id = await bench.submit(**wanted)
        await bench.until_waiting_for(job_id, "PartitionConfig")
        await bench.slurm.cancel(job_id)
    with pytest.raises((NoRoomNow, InvalidRequest)):
        await bench.allocate(**wanted)


async def test_a_job_for_a_partition_that_is_down_waits_and_is_not_allocated(bench: Bench) -> None:
    job_id = await bench.submit(partition="closed")
    await bench.until_waiting_for(job_id, "PartitionDown")
    await bench.slurm.cancel(job_id)
    with pytest.raises(NoRoomNow):
        await bench.allocate(partition="closed")


async def test_a_job_over_the_time_limit_of_its_partition_waits(bench: Bench) -> None:
    for create in (bench.slurm.submit, bench.slurm.allocate):
        asked = spec(partition="short", time_limit_minutes=6)
        job_id = await create(asked, next(bench.ids))
        assert (await bench.state(job_id)).pending
        await bench.until_waiting_for(job_id, "PartitionTimeLimit")
        await bench.slurm.cancel(job_id)


async def test_a_job_for_a_drained_node_waits_for_it(bench: Bench) -> None:
    await bench.drain("node-1")
    try:
        job_id = await bench.submit(required_nodes=("node-1",))
        await bench.until_waiting_for(job_id, "ReqNodeNotAvail")
    finally:
        await bench.resume("node-1")
    await bench.until_running(job_id)


# -- refusals by a job_submit plugin


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (-1, Unexplained),  # slurm.ERROR and slurm.FAILURE are -1
        (1, Unexplained),
        (11, RetryLater),
        (2000, InvalidRequest),
        (2002, NeedsOperator),
        (2011, JobIdTaken),
    ],
)
async def test_a_job_that_a_plugin_refuses_is_not_created(
    bench: Bench, number: int, error: type[SlurmError]
) -> None:
    for create in (bench.slurm.submit, bench.slurm.allocate):
        job_id = next(bench.ids)
        with pytest.raises(error) as refused:
            await create(spec(comment=f"plugin says {number}"), job_id)
        assert type(refused.value) is error
        assert await bench.slurm.job(job_id) is None


async def test_a_plugin_refusal_without_a_message_points_to_slurmrestds_log(bench: Bench) -> None:
    with pytest.raises(Unexplained, match=r"perhaps a plugin of Slurm's .* slurmrestd's log"):
        await bench.submit(comment="plugin says -1")


async def test_a_plugin_is_asked_before_slurm_looks_for_a_duplicate(bench: Bench) -> None:
    job = await bench.allocate()
    with pytest.raises(Unexplained):
        await bench.slurm.submit(spec(comment="plugin says -1"), job.id)
    assert (await bench.read(job.id)).state.running


async def test_a_change_that_a_plugin_refuses_is_not_made(bench: Bench) -> None:
    job = await bench.allocate(comment="as it was")
    with pytest.raises(Unexplained):
        await bench.slurm.update(job.id, JobChanges(comment="plugin says -1"))
    assert (await bench.read(job.id)).comment == "as it was"
