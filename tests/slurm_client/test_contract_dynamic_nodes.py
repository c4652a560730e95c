"""Contract tests of dynamic nodes: a slurmd that registers creates its node, Slurm deletes nodes, and
power saving suspends nodes."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial

import pytest

from deploy.local.cluster import Cluster
from slurm_client.errors import InvalidRequest
from slurm_client.model import Node, Power
from slurm_client.rest.client import SlurmRest
from tests.eventually import until
from tests.slurm_client.conftest import REAL, through_the_stub
from tests.slurm_client.pool_bench import (
    DYNAMIC,
    FEATURE,
    PARTITION,
    STATIC,
    InMemoryPool,
    PoolBench,
    RealPool,
    spec,
)

NODE, OTHER = DYNAMIC
REASON = "slurm-extender: the Node is gone"


@pytest.fixture(scope="module")
def cluster_with_a_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Cluster]]:
    with ExitStack() as running:

        @cache
        def started(release: str) -> Cluster:
            directory = tmp_path_factory.mktemp(f"pool-{release}-")
            return running.enter_context(Cluster.up(spec(release), directory))

        yield started


@pytest.fixture(params=["in_memory", "stub", *REAL])
async def pool(
    request: pytest.FixtureRequest, cluster_with_a_pool: Callable[[str], Cluster]
) -> AsyncIterator[PoolBench]:
    if request.param == "in_memory":
        yield InMemoryPool()
    elif request.param == "stub":
        async with through_the_stub(InMemoryPool()) as stubbed:
            yield stubbed
    else:
        cluster = cluster_with_a_pool(request.param)
        slurm = SlurmRest(cluster.slurmrestd_url, cluster.token_file)
        found = RealPool(slurm, cluster)
        yield found
        await found.clear()
        await slurm.aclose()


async def until_after(second: int) -> None:
    """Waits until this second is over. slurmd reports its start in whole seconds, so two starts in the
    same second cannot be distinguished."""

    async def passed() -> bool:
        return int(time.time()) > second

    await until(passed, within_s=15)


async def until_started_after(pool: PoolBench, second: int) -> Node:
    return await pool.until_seen(NODE, lambda node: (node.slurmd_started or 0) > second)


async def test_a_slurmd_that_registers_makes_a_dynamic_node(pool: PoolBench) -> None:
    before = int(time.time())
    node = await pool.joined(NODE, "fast")
    assert node.dynamic
    assert node.responding
    assert node.power is None
    assert node.schedulable
    assert node.features == (FEATURE, "fast")
    assert node.partitions == (PARTITION,)
    assert node.slurmd_started is not None
    assert before <= node.slurmd_started <= time.time()
    assert not (await pool.see(STATIC)).dynamic
    job = await pool.allocate(partition=PARTITION, cpus=3, memory_mb=1000, gres=(("gpu", 1),))
    assert job.nodes == (NODE,)
    assert job.gres == ("gpu:h100:1(IDX:0)",)
    node = await pool.see(NODE)
    assert (node.cpus_allocated, node.memory_allocated_mb) == (3, 1000)


async def test_a_node_that_is_deleted_is_gone_until_its_slurmd_starts_again(pool: PoolBench) -> None:
    await pool.joined(NODE, "old")
    await pool.joined(OTHER)
    await pool.slurm.drain_node(NODE, REASON)
    for _ in range(2):
        await pool.slurm.delete_node(NODE)
        assert await pool.slurm.node(NODE) is None
    assert {one.name for one in await pool.slurm.nodes()} == {STATIC, OTHER}
    partitions = {one.name: one.nodes for one in await pool.slurm.partitions()}
    assert partitions[PARTITION] == (OTHER,)
    await pool.stop_slurmd(NODE)
    node = await pool.joined(NODE, "new")
    assert node.features == (FEATURE, "new")
    assert "DRAIN" not in node.states


async def test_a_node_that_has_jobs_is_not_deleted(pool: PoolBench) -> None:
    await pool.joined(NODE)
    job = await pool.allocate(partition=PARTITION)
    await pool.slurm.drain_node(NODE, REASON)
    with pytest.raises(InvalidRequest, match="busy") as refused:
        await pool.slurm.delete_node(NODE)
    assert refused.value.number == 2016
    assert (await pool.state(job.id)).running
    await pool.slurm.cancel(job.id)
    await pool.until_seen(NODE, lambda node: not node.cpus_allocated and "COMPLETING" not in node.states)
    await pool.slurm.delete_node(NODE)
    assert await pool.slurm.node(NODE) is None


async def test_a_reserved_node_is_not_deleted(pool: PoolBench) -> None:
    await pool.joined(NODE)
    with pool.reserved("maintenance", [NODE], ["root"]):
        await pool.until_seen(NODE, lambda node: "RESERVED" in node.states)
        with pytest.raises(InvalidRequest):
            await pool.slurm.delete_node(NODE)
    assert await pool.slurm.node(NODE) is not None


async def test_reservations_are_listed_before_they_begin(pool: PoolBench) -> None:
    await pool.joined(NODE)
    assert await pool.slurm.reservations() == ()
    asked = int(time.time())
    with (
        pool.reserved("daily", [NODE, STATIC], ["alice"], in_hours=1, flags=["DAILY"]),
        pool.reserved("maintenance", ["ALL"], ["root"], in_hours=5, flags=["MAINT"]),
    ):
        found = {one.name: one for one in await pool.slurm.reservations()}
        assert found.keys() == {"daily", "maintenance"}
        daily, maintenance = found["daily"], found["maintenance"]
        assert {*daily.nodes} == {NODE, STATIC}
        assert daily.start is not None
        assert daily.end is not None
        assert asked + 3600 <= daily.start <= time.time() + 3600
        assert daily.end - daily.start == 3600
        assert daily.flags >= {"DAILY"}
        assert daily.recurs
        assert not daily.follows
        assert {*maintenance.nodes} >= {NODE, STATIC}
        assert maintenance.follows
        assert not maintenance.recurs
        assert not maintenance.over(time.time())
    assert await pool.slurm.reservations() == ()


@pytest.mark.parametrize("flags", [(), ("DAILY",)])
async def test_a_future_reservation_is_removed_with_its_only_node(
    pool: PoolBench, flags: tuple[str, ...]
) -> None:
    await pool.joined(NODE)
    with pool.reserved("course", [NODE], ["alice"], in_hours=1, flags=flags):
        await pool.slurm.delete_node(NODE)

        async def gone() -> bool:
            return await pool.reservation("course") is None

        await until(gone, within_s=15)


async def test_a_future_reservation_loses_a_node_that_is_recreated(pool: PoolBench) -> None:
    """24.11 keeps the deleted node's name in the reservation. After the node is recreated,
    `validate_reservations` makes the reservation effective for the node again."""
    await pool.joined(NODE)
    keeps_the_name = (await pool.slurm.connect()).release.startswith("24.11")
    with pool.reserved("course", [NODE, STATIC], ["alice"], in_hours=1):

        async def is_as_told() -> bool:
            found = await pool.reservation("course")
            return found is not None and (NODE in found.nodes) == keeps_the_name

        await pool.slurm.delete_node(NODE)
        await until(is_as_told, within_s=15)
        await pool.stop_slurmd(NODE)
        await pool.joined(NODE)
        await pool.slurm.validate_reservations(NODE)
        assert await is_as_told()


async def test_a_reservation_of_all_nodes_regains_a_node_that_is_recreated(pool: PoolBench) -> None:
    await pool.joined(NODE)
    with pool.reserved("maintenance", ["ALL"], ["root"], in_hours=1):

        async def has(node: bool = True) -> bool:
            found = await pool.reservation("maintenance")
            return found is not None and (NODE in found.nodes) is node

        await pool.slurm.delete_node(NODE)
        await until(partial(has, False), within_s=15)
        await pool.stop_slurmd(NODE)
        before = await pool.joined(NODE)
        assert await has(False)
        await pool.slurm.validate_reservations(NODE)
        await until(has, within_s=15)
        assert await pool.see(NODE) == before
    with pytest.raises(InvalidRequest):
        await pool.slurm.validate_reservations("nowhere")


async def test_a_node_of_slurm_conf_is_not_deleted(pool: PoolBench) -> None:
    with pytest.raises(InvalidRequest):
        await pool.slurm.delete_node(STATIC)
    assert await pool.slurm.node(STATIC) is not None


async def test_a_hostlist_or_empty_text_is_not_a_valid_node_name(pool: PoolBench) -> None:
    await pool.joined(NODE)
    for name in ("dynamic-[1-2]", "dynamic-1,dynamic-2", "../node/dynamic-1", ""):
        with pytest.raises(InvalidRequest):
            await pool.slurm.delete_node(name)
        with pytest.raises(InvalidRequest):
            await pool.slurm.down_node(name, REASON)
    with pytest.raises(InvalidRequest):
        await pool.slurm.down_node("nowhere", REASON)
    assert (await pool.see(NODE)).schedulable


async def test_a_restarted_slurmd_keeps_its_node_and_its_jobs(pool: PoolBench) -> None:
    first = await pool.joined(NODE, "old")
    job = await pool.allocate(partition=PARTITION, gres=(("gpu", 2),))
    started = first.slurmd_started or 0
    await pool.stop_slurmd(NODE)
    await until_after(started)
    await pool.start_slurmd(NODE, "new")
    node = await until_started_after(pool, started)
    assert node.responding
    assert node.features == (FEATURE, "old")
    assert node.cpus_allocated == 1
    assert await pool.slurm.grant(job.id) == job.grant
    assert (await pool.state(job.id)).running


async def test_a_node_that_is_down_runs_no_jobs_until_it_is_recreated(pool: PoolBench) -> None:
    await pool.joined(NODE)
    job = await pool.allocate(partition=PARTITION)
    await pool.slurm.drain_node(NODE, "by hand")
    await pool.slurm.down_node(NODE, REASON)
    node = await pool.see(NODE)
    assert node.states >= {"DOWN", "DRAIN"}
    assert node.reason == REASON
    assert (await pool.state(job.id)).base == "NODE_FAIL"
    await pool.slurm.undrain_node(NODE)
    assert "DOWN" in (await pool.see(NODE)).states
    await pool.slurm.delete_node(NODE)
    await pool.stop_slurmd(NODE)
    assert (await pool.joined(NODE)).schedulable


async def test_a_node_without_its_slurmd_is_down_until_slurmd_restarts(pool: PoolBench) -> None:
    await pool.joined(NODE, "old")
    job = await pool.allocate(partition=PARTITION)
    await pool.lose_slurmd(NODE)
    node = await pool.until_seen(NODE, lambda node: "DOWN" in node.states, within_s=40)
    assert not node.responding
    assert node.reason == "Not responding"
    assert (await pool.state(job.id)).base == "NODE_FAIL"
    await pool.start_slurmd(NODE, "old")
    assert (await pool.until_seen(NODE, lambda node: node.schedulable)).reason == ""


async def test_a_suspended_and_resumed_node_shows_its_power_state(pool: PoolBench) -> None:
    started = (await pool.joined(NODE)).slurmd_started or 0
    await pool.power_down(NODE)
    await pool.until_power(NODE, Power.POWERING_DOWN)
    await pool.stop_slurmd(NODE)
    await pool.has_powered_down(NODE)
    node = await pool.until_power(NODE, Power.POWERED_DOWN)
    assert node.responding
    await pool.power_up(NODE)
    await pool.until_power(NODE, Power.POWERING_UP)
    await until_after(started)
    await pool.start_slurmd(NODE)
    await until_started_after(pool, started)
    assert (await pool.see(NODE)).power is Power.POWERING_UP
    await pool.stop_slurmd(NODE)
    await pool.start_slurmd(NODE, booted=True)
    node = await pool.until_power(NODE, None)
    assert node.responding
    assert node.schedulable


async def test_a_node_that_reboots_unexpectedly_is_down(pool: PoolBench) -> None:
    started = (await pool.joined(NODE)).slurmd_started or 0
    job = await pool.allocate(partition=PARTITION)
    await pool.stop_slurmd(NODE)
    # slurmctld compares the node's boot time with the time of slurmd's last answer, in whole seconds
    # (node_mgr.c, validate_node_specs). slurmctld records the time of an answer up to a second late
    # (agent.c, _wdog), and even later on a busy machine. So slurmctld may miss a reboot in the first
    # seconds after the start of the job.
    await until_after(int(time.time()) + pool.seconds_to_a_boot)
    await pool.start_slurmd(NODE, booted=True)
    node = await until_started_after(pool, started)
    assert "DOWN" in node.states
    assert node.reason == "Node unexpectedly rebooted"
    assert (await pool.state(job.id)).base == "NODE_FAIL"
