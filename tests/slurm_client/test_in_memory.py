"""Tests of `InMemorySlurm`, and of the functions with which other tests control time, failures, lost
changes and lost replies."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_client import hostlist
from slurm_client.errors import JobIdTaken, NoRoomNow, OutcomeUnknown, Unreachable
from slurm_client.in_memory import DEFAULTS, InMemorySlurm, features, node, partition
from slurm_client.in_memory.gres import Pools
from slurm_client.model import JobChanges
from tests.clock import Clock, CpuClock
from tests.slurm_client.bench import spec

GPU = (("gpu", 4),)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slurm(clock: Clock) -> InMemorySlurm:
    return InMemorySlurm(
        [node(name, cpus=8, gres="gpu:h100:4") for name in ("n1", "n2")],
        [partition("main", "n[1-2]", default=True), partition("urgent", "n[1-2]", priority_tier=9)],
        clock=clock,
        configuration=replace(DEFAULTS, min_job_age_s=60),
    )


async def base(slurm: InMemorySlurm, job_id: int) -> str:
    return (await slurm.states([job_id]))[job_id].base


async def test_a_submitted_job_starts_at_the_next_tick_and_not_before(
    slurm: InMemorySlurm, clock: Clock
) -> None:
    clock.now += 0.1
    await slurm.submit(spec(), 1)
    clock.now += 0.1
    assert await base(slurm, 1) == "PENDING"
    clock.now += 0.1
    assert await base(slurm, 1) == "RUNNING"


async def test_a_time_limit_ends_a_job_and_the_next_one_starts(
    slurm: InMemorySlurm, clock: Clock
) -> None:
    for job_id in (1, 2):
        await slurm.allocate(spec(gres=GPU, time_limit_minutes=1), job_id)
    await slurm.submit(spec(gres=GPU), 3)
    clock.now += 100
    assert [await base(slurm, job_id) for job_id in (1, 2, 3)] == ["TIMEOUT", "TIMEOUT", "RUNNING"]
    first = await slurm.job(1)
    third = await slurm.job(3)
    assert first
    assert third
    assert (first.end_time, third.start_time) == (1060, 1060)


async def test_an_ended_job_is_forgotten_after_min_job_age(slurm: InMemorySlurm, clock: Clock) -> None:
    await slurm.allocate(spec(), 1)
    await slurm.cancel(1)
    clock.now += 59
    with pytest.raises(JobIdTaken):
        await slurm.submit(spec(), 1)
    clock.now += 1
    assert await slurm.states([1]) == {}
    assert await slurm.submit(spec(), 1) == 1


async def test_a_higher_priority_tier_starts_first_and_blocks_lower_allocations(
    slurm: InMemorySlurm, clock: Clock
) -> None:
    for job_id in (1, 2):
        await slurm.allocate(spec(gres=GPU), job_id)
    await slurm.submit(spec(gres=GPU, priority=100), 3)
    await slurm.submit(spec(gres=GPU, partition="urgent"), 4)
    with pytest.raises(NoRoomNow):
        await slurm.allocate(spec(priority=1000), 5)
    await slurm.cancel(1)
    clock.now += 1
    assert [await base(slurm, job_id) for job_id in (3, 4)] == ["PENDING", "RUNNING"]


async def test_a_job_with_required_nodes_does_not_block_the_others(
    slurm: InMemorySlurm, clock: Clock
) -> None:
    await slurm.allocate(spec(gres=GPU, required_nodes=("n1",)), 1)
    await slurm.submit(spec(gres=GPU, required_nodes=("n1",)), 2)
    await slurm.submit(spec(gres=GPU), 3)
    clock.now += 1
    assert [await base(slurm, job_id) for job_id in (2, 3)] == ["PENDING", "RUNNING"]


async def test_a_job_of_two_nodes_gets_its_required_node_at_any_position() -> None:
    slurm = InMemorySlurm(
        [node(f"n{number}", cpus=8) for number in range(1, 5)],
        [partition("main", "n[1-4]", default=True)],
    )
    await slurm.allocate(spec(cpus=8, required_nodes=("n1",)), 1)
    await slurm.allocate(spec(nodes=2, cpus=8, required_nodes=("n4",)), 2)
    found = await slurm.job(2)
    assert found is not None
    assert found.nodes == ("n2", "n4")
    with pytest.raises(NoRoomNow):
        await slurm.allocate(spec(nodes=2, required_nodes=("n4",)), 3)


@pytest.mark.alone
async def test_an_allocation_among_thousands_of_nodes_and_jobs_takes_little_cpu_time() -> None:
    """Load tests use `InMemorySlurm`, and must measure the extender alone."""
    names = [f"n{number}" for number in range(5000)]
    slurm = InMemorySlurm(
        [node(name, cpus=1, features=("h100", "ib")) for name in names],
        [partition("main", names, default=True), partition("closed", names, up=False)],
    )
    for number in range(2000):
        await slurm.submit(spec(partition="closed"), 10_000 + number)
    clock = CpuClock()
    for number in range(200):
        await slurm.allocate(spec(constraints="h100&ib", excluded_nodes=("n0", "n1")), 1 + number)
    assert clock.read() / 200 < 0.005


async def test_a_preempted_job_ends_and_frees_its_node(slurm: InMemorySlurm) -> None:
    await slurm.allocate(spec(gres=GPU, required_nodes=("n1",)), 1)
    slurm.preempt(1)
    assert await base(slurm, 1) == "PREEMPTED"
    await slurm.allocate(spec(gres=GPU, required_nodes=("n1",)), 2)


async def test_a_failed_node_ends_its_jobs(slurm: InMemorySlurm) -> None:
    await slurm.allocate(spec(required_nodes=("n1",)), 1)
    await slurm.allocate(spec(required_nodes=("n2",)), 2)
    slurm.fail_node("n1")
    assert [await base(slurm, job_id) for job_id in (1, 2)] == ["NODE_FAIL", "RUNNING"]
    by_name = {one.name: one for one in await slurm.nodes()}
    assert not by_name["n1"].schedulable
    slurm.resume_node("n1")
    await slurm.allocate(spec(required_nodes=("n1",)), 3)


async def test_a_suspended_job_keeps_its_node(slurm: InMemorySlurm) -> None:
    await slurm.allocate(spec(gres=GPU, required_nodes=("n1",)), 1)
    slurm.suspend(1)
    assert (await slurm.states([1]))[1].suspended
    with pytest.raises(NoRoomNow):
        await slurm.allocate(spec(gres=GPU, required_nodes=("n1",)), 2)
    slurm.resume(1)
    assert (await slurm.states([1]))[1].running


async def test_a_requeued_batch_job_may_restart_with_fewer_cpus_and_then_ends(clock: Clock) -> None:
    """test_rest.test_a_batch_placeholder_that_its_owner_requeues_ends tests the same with a real
    Slurm."""
    nodes = [node("n1", cpus=8, gres="gpu:h100:4")]
    slurm = InMemorySlurm(
        nodes, [partition("main", "n1", default=True)], clock=clock, external_jobs=False
    )
    await slurm.submit(spec(cpus=8), 1)
    clock.now += 0.25
    slurm.requeue(1)
    slurm.resize(1, 1)
    assert await base(slurm, 1) == "PENDING"
    await slurm.submit(spec(cpus=7), 2)
    clock.now += 0.25
    job = await slurm.job(1)
    assert job is not None
    assert (job.state.base, job.restart_count, job.cores) == ("RUNNING", 1, ("0",))
    assert await base(slurm, 2) == "RUNNING"
    before = clock.now
    clock.now += 0.25
    assert await base(slurm, 1) == "COMPLETED"
    slurm.forget_since(before)
    clock.now += 0.25
    assert await base(slurm, 1) == "COMPLETED"


async def test_an_external_job_cannot_be_requeued(slurm: InMemorySlurm) -> None:
    await slurm.allocate(spec(), 1)
    with pytest.raises(ValueError, match="no batch job that runs"):
        slurm.requeue(1)


async def test_an_administrator_may_cancel_a_job(slurm: InMemorySlurm) -> None:
    await slurm.allocate(spec(), 1)
    slurm.admin_cancel(1)
    assert await base(slurm, 1) == "CANCELLED"


async def test_calls_fail_and_do_nothing_during_an_outage(slurm: InMemorySlurm) -> None:
    slurm.outage(Unreachable("down"))
    for call in (slurm.ping(), slurm.submit(spec(), 1), slurm.states([1]), slurm.nodes()):
        with pytest.raises(Unreachable):
            await call
    slurm.outage(None)
    assert await slurm.states([1]) == {}


async def test_a_submission_with_a_lost_reply_creates_its_job(slurm: InMemorySlurm) -> None:
    slurm.lose_reply_of_next("submit")
    with pytest.raises(OutcomeUnknown):
        await slurm.submit(spec(), 1)
    with pytest.raises(JobIdTaken):
        await slurm.submit(spec(), 1)


async def test_a_killed_slurmctld_forgets_submissions_cancels_and_drains(
    slurm: InMemorySlurm, clock: Clock
) -> None:
    await slurm.allocate(spec(gres=GPU, required_nodes=("n1",)), 1)
    clock.now += 10
    await slurm.cancel(1)
    await slurm.submit(spec(gres=GPU, required_nodes=("n1",)), 2)
    slurm.drain("n2")
    clock.now += 1
    assert await base(slurm, 2) == "RUNNING"
    slurm.forget_since(clock.now - 2)
    assert await slurm.states([1, 2]) == {1: (await slurm.states([1]))[1]}
    assert await base(slurm, 1) == "RUNNING"
    by_name = {one.name: one for one in await slurm.nodes()}
    assert by_name["n1"].gres_used == "gpu:h100:4"
    assert by_name["n2"].schedulable


async def test_a_killed_slurmctld_forgets_which_nodes_were_made_and_deleted(
    slurm: InMemorySlurm, clock: Clock
) -> None:
    slurm.register(node("old"), ["main"])
    clock.now += 10
    await slurm.delete_node("old")
    slurm.register(node("new"), ["main"])
    slurm.forget_since(clock.now - 2)
    assert {one.name for one in await slurm.nodes()} == {"n1", "n2", "old"}
    assert {one.nodes for one in await slurm.partitions()} == {("n1", "n2", "old"), ("n1", "n2")}


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("a", True),
        ("c", False),
        ("a&b", True),
        ("a&c", False),
        ("c|a", True),
        ("c|a&b", True),
        ("(c|a)&b", True),
        ("(c|d)&b", False),
        ("a,b", True),
    ],
)
def test_feature_expressions_are_evaluated(expression: str, holds: bool) -> None:
    assert features.satisfied(expression, ("a", "b")) is holds


def test_devices_of_several_types_are_numbered_consecutively() -> None:
    pools = Pools("gpu:h100:2,gpu:a100:2(S:0),shard:8")
    found = pools.find([("gpu", 3), ("shard", 1)])
    assert found is not None
    assert [one.text for one in found] == ["gpu:h100:2(IDX:0-1)", "gpu:a100:1(IDX:2)", "shard:1(IDX:0)"]


# Random sequences of steps, for a test that Slurm allocates no resource twice, and that all resources
# become free again.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "submit", "cancel", "preempt", "exclude", "tick", "forget"]),
        st.integers(1, 12),
        st.integers(1, 4),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(STEPS)
async def test_no_gpu_is_ever_allocated_twice(steps: list[tuple[str, int, int]]) -> None:
    clock = Clock()
    slurm = InMemorySlurm(
        [node(name, cpus=8, gres="gpu:h100:4") for name in ("n1", "n2")],
        [partition("main", "n[1-2]", default=True)],
        clock=clock,
    )
    for action, job_id, count in steps:
        await _step(slurm, clock, action, job_id, count)
        await _check_books(slurm)


async def _step(slurm: InMemorySlurm, clock: Clock, action: str, job_id: int, count: int) -> None:
    asked = spec(gres=(("gpu", count),), cpus=count)
    state = (await slurm.states([job_id])).get(job_id)
    live = state is not None and not state.ended
    match action:
        case "allocate" | "submit" if state is None:
            create = slurm.allocate if action == "allocate" else slurm.submit
            try:
                await create(asked, job_id)
            except NoRoomNow:
                assert action == "allocate"
        case "cancel":
            await slurm.cancel(job_id)
        case "preempt" if live:
            slurm.preempt(job_id)
        case "exclude" if live:
            await slurm.update(job_id, JobChanges(excluded_nodes=("n1",)))
        case "forget":
            slurm.forget_since(clock.now - count)
        case _:
            clock.now += count * 0.3


def _indices(gres: str) -> list[str]:
    """Returns the device numbers of a text such as "gpu:h100:3(IDX:0,2-3)"."""
    found = re.findall(r"IDX:([\d,-]+)", gres)
    return [index for each in found for index in hostlist.expand(f"[{each}]")]


async def _check_books(slurm: InMemorySlurm) -> None:
    """Checks that the amounts of each node equal the sums over the node's running jobs, and that no two
    jobs have the same device."""
    jobs = [await slurm.job(job_id) for job_id in await slurm.all_states()]
    running = [job for job in jobs if job and job.state.running]
    for one in await slurm.nodes():
        here = [job for job in running if one.name in job.nodes]
        assert one.cpus_allocated == sum(job.cpus_per_node or 0 for job in here)
        gres = [dict(zip(job.nodes, job.gres, strict=False)).get(one.name, "") for job in here]
        devices = [index for text in gres for index in _indices(text)]
        assert len(devices) == len(set(devices))
        assert one.gres_used == f"gpu:h100:{len(devices)}"
