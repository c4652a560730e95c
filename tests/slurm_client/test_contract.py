"""Contract tests of every Slurm behind `protocol.Slurm`: the real 26.05, the real 24.11, and the Slurm
in memory.

If the Slurm in memory lacks a behaviour of the real Slurms, the Slurm in memory has a bug. If a real
Slurm lacks a feature, the capabilities say so, and the tests check the capabilities. This file is about
the server, nodes, partitions, and immediate starts of jobs. The other files test_contract_*.py have the
remaining tests.
"""

from typing import Any

import pytest

from slurm_client import gres
from slurm_client.errors import InvalidRequest, JobIdTaken, NoRoomNow
from slurm_client.model import MOST_MINUTES, JobChanges, Sharing
from slurm_client.server import Configuration
from tests.slurm_client.bench import CPUS, GPUS, MEMORY_MB, NODES, Bench, spec
from wellknown import number_list

# -- the server


async def test_connecting_twice_gives_the_same_capabilities_and_a_ping(bench: Bench) -> None:
    first = await bench.slurm.connect()
    assert await bench.slurm.connect() is first
    assert bench.slurm.capabilities is first
    assert first.release
    assert first.cluster
    await bench.slurm.ping()


async def test_the_configuration_names_the_limits_that_job_ids_need(bench: Bench) -> None:
    configuration = await bench.slurm.configuration()
    if not bench.slurm.capabilities.configuration:
        assert configuration == Configuration(boot_time=configuration.boot_time)
        assert configuration.boot_time
        return
    assert configuration.first_job_id == 1
    assert configuration.max_job_id == 33_554_432
    assert configuration.min_job_age_s
    assert configuration.kill_wait_s
    assert configuration.boot_time
    assert configuration.slurm_user_id is not None
    assert configuration.slurm_user
    assert configuration.task_plugins is not None
    assert configuration.proctrack_type
    assert configuration.select_type == "select/cons_tres"
    assert configuration.select_type_parameters == ("CR_CORE_MEMORY",)
    assert (configuration.prolog_flags, configuration.accounting_store_flags) == ((), ())
    assert configuration.accounting_storage_type == ""
    assert configuration.return_to_service in {"no", "non_responsive_only"}
    assert configuration.slurmctld_parameters is not None
    assert configuration.max_node_count is not None
    assert configuration.slurmd_timeout_s
    for programs in (configuration.prologs, configuration.slurmctld_prologs):
        assert programs == ()


async def test_job_ids_above_max_job_id_are_accepted(bench: Bench) -> None:
    """MaxJobId limits only the ids that Slurm assigns itself. So native jobs never get an id from the
    placeholders' range above MaxJobId."""
    job_id = 45_000_000 + next(bench.ids) % 10_000_000
    assert await bench.slurm.submit(spec(), job_id) == job_id
    assert (await bench.read(job_id)).id == job_id
    with pytest.raises(JobIdTaken):
        await bench.slurm.submit(spec(), job_id)
    await bench.slurm.cancel(job_id)


async def test_nodes_have_their_resources_features_and_partitions(bench: Bench) -> None:
    assert {node.name for node in await bench.slurm.nodes()} == set(NODES)
    one = await bench.see("node-1")
    assert (one.cpus, one.memory_mb) == (CPUS, MEMORY_MB)
    assert one.gres == f"gpu:h100:{GPUS}"
    assert set(one.features) == {"h100", "ib"}
    assert set(one.partitions) == {"main", "short", "closed"}
    assert one.address == "127.0.0.1"
    assert one.schedulable


async def test_a_drained_node_is_not_schedulable_and_a_resumed_one_is(bench: Bench) -> None:
    await bench.drain("node-1")
    assert not (await bench.see("node-1")).schedulable
    await bench.resume("node-1")
    # The node is NOT_RESPONDING for up to two seconds, until slurmd answers.
    await bench.until_seen("node-1", lambda node: node.schedulable)


async def test_partitions_have_their_nodes_and_limits(bench: Bench) -> None:
    partitions = {partition.name: partition for partition in await bench.slurm.partitions()}
    assert partitions["main"].default == bench.slurm.capabilities.default_partition
    assert partitions["main"].nodes == NODES
    assert partitions["main"].max_time_minutes is None
    assert partitions["main"].up
    assert partitions["short"].max_time_minutes == 5
    assert not partitions["short"].default
    assert not partitions["closed"].up
    assert partitions["main"].default_time_minutes is None
    assert partitions["closed"].default_time_minutes == 3
    allowed = {partition.name: partition.max_nodes for partition in partitions.values()}
    assert allowed == {"main": None, "short": 2, "closed": None}
    of_closed = partitions["closed"]
    assert (of_closed.max_cpus_per_node, of_closed.max_memory_mb, of_closed.min_nodes) == (6, 2000, 1)
    assert (partitions["main"].max_cpus_per_node, partitions["main"].max_memory_mb) == (None, None)
    told = bench.slurm.capabilities.configuration
    assert partitions["main"].select_type_parameters == ()
    assert partitions["closed"].select_type_parameters == (("CR_CORE",) if told else ())


# -- allocate


async def test_an_allocation_runs_at_once_with_gres_indices(bench: Bench) -> None:
    job = await bench.allocate(cpus=2, gres=(("gpu", 2),))
    assert job.state.running
    assert len(job.nodes) == 1
    assert job.gres == ("gpu:h100:2(IDX:0-1)",)
    assert job.cpus_allocated == 2
    assert job.external == bench.slurm.capabilities.external_jobs
    assert (await bench.allocate()).gres == ()


async def test_two_allocations_on_a_node_have_different_gpus(bench: Bench) -> None:
    first = await bench.allocate(gres=(("gpu:h100", 1),), required_nodes=("node-1",))
    second = await bench.allocate(gres=(("gpu:h100", 2),), required_nodes=("node-1",))
    assert first.gres == ("gpu:h100:1(IDX:0)",)
    assert second.gres == ("gpu:h100:2(IDX:1-2)",)


async def test_two_allocations_on_a_node_have_cores_and_memory_of_their_own(bench: Bench) -> None:
    first = await bench.allocate(cpus=2, memory_mb=200, required_nodes=("node-1",))
    second = await bench.allocate(cpus=3, memory_mb=100, required_nodes=("node-1",))
    (one,), (other,) = (map(number_list.expand, job.cores) for job in (first, second))
    assert (len(one), len(other), len({*one, *other})) == (2, 3, 5)
    assert max(*one, *other) < CPUS
    assert (first.memory_allocated_mb, second.memory_allocated_mb) == ((200,), (100,))


async def test_a_job_of_two_nodes_has_its_gpus_on_each(bench: Bench) -> None:
    job = await bench.allocate(nodes=2, cpus=3, gres=(("gpu", 2),))
    assert job.nodes == NODES
    assert job.gres == ("gpu:h100:2(IDX:0-1)",) * 2
    assert [len(number_list.expand(on_node)) for on_node in job.cores] == [3, 3]
    assert job.node_count == 2
    assert [node.cpus_allocated for node in await bench.slurm.nodes()] == [3, 3]


@pytest.mark.parametrize("cpus", [1, 3, 8])
async def test_a_job_gets_exactly_the_requested_number_of_cpus(bench: Bench, cpus: int) -> None:
    job = await bench.allocate(cpus=cpus, memory_mb=200)
    allocated = await bench.see(job.nodes[0])
    assert allocated.cpus_allocated == cpus
    assert allocated.memory_allocated_mb == 200
    assert job.cpus_per_node == cpus


async def test_nodes_show_the_allocation_of_a_job_at_once(bench: Bench) -> None:
    """The extender needs current amounts to place a job beside other jobs. `see` reads the list of all
    nodes, because GET node/{name} shows allocated CPUs and memory late."""
    for number in range(1, 4):
        await bench.allocate(gres=(("gpu", 1),), cpus=2, required_nodes=("node-1",))
        one = await bench.see("node-1")
        assert (one.cpus_allocated, one.memory_allocated_mb) == (2 * number, 100 * number)
        assert gres.counts(one.gres_used)["gpu"] == number


async def test_a_refused_allocation_queues_no_job_and_uses_up_its_id(bench: Bench) -> None:
    await bench.fill()
    job_id = next(bench.ids)
    with pytest.raises(NoRoomNow):
        await bench.slurm.allocate(spec(gres=(("gpu", 1),)), job_id)
    assert (await bench.state(job_id)).base == "FAILED"
    with pytest.raises(JobIdTaken):
        await bench.slurm.submit(spec(), job_id)


async def test_an_allocation_does_not_overtake_a_waiting_job_of_its_priority(bench: Bench) -> None:
    await bench.fill()
    waiting = await bench.submit(gres=(("gpu", 1),))
    with pytest.raises(NoRoomNow):
        await bench.allocate(cpus=1)
    await bench.slurm.cancel(waiting)
    assert (await bench.allocate(cpus=1)).state.running


async def test_an_allocation_may_overtake_a_held_job_and_is_refused_if_held(bench: Bench) -> None:
    await bench.submit(priority=0)
    assert (await bench.allocate()).state.running
    with pytest.raises(NoRoomNow):
        await bench.allocate(priority=0)


async def test_the_client_rejects_an_allocation_for_another_user(bench: Bench) -> None:
    job_id = next(bench.ids)
    with pytest.raises(InvalidRequest, match="submit it instead"):
        await bench.slurm.allocate(spec(user_id=2001), job_id)
    assert await bench.slurm.job(job_id) is None
    assert (await bench.allocate(user_id=0, group_id=0)).user_id == 0


async def test_an_allocation_on_a_drained_node_is_refused(bench: Bench) -> None:
    await bench.drain("node-1")
    try:
        with pytest.raises(NoRoomNow):
            await bench.allocate(required_nodes=("node-1",))
    finally:
        await bench.resume("node-1")


# -- submit


async def test_a_submitted_job_runs_within_a_scheduling_tick(bench: Bench) -> None:
    job = await bench.until_running(await bench.submit(gres=(("gpu", 1),)))
    assert job.gres == ("gpu:h100:1(IDX:0)",)
    assert job.start_time is not None
    assert job.submit_time is not None
    assert job.external == bench.slurm.capabilities.external_jobs


async def test_jobs_wait_with_a_reason_on_a_full_cluster(bench: Bench) -> None:
    held = await bench.fill()
    first = await bench.submit(gres=(("gpu", GPUS),))
    second = await bench.submit(gres=(("gpu", GPUS),))
    await bench.until_waiting_for(first, "Resources")
    await bench.until_waiting_for(second, "Priority")
    assert (await bench.state(second)).pending
    await bench.slurm.cancel(held[0])
    await bench.until_running(first)
    assert (await bench.state(second)).pending


async def test_the_job_with_the_higher_priority_starts_first(bench: Bench) -> None:
    held = await bench.fill()
    low = await bench.submit(gres=(("gpu", GPUS),), priority=5)
    high = await bench.submit(gres=(("gpu", GPUS),), priority=50)
    await bench.slurm.cancel(held[0])
    await bench.until_running(high)
    assert (await bench.state(low)).pending


async def test_every_field_of_a_spec_can_be_read_back(bench: Bench) -> None:
    await bench.fill()
    asked = spec(
        name="ns/pod",
        cpus=3,
        memory_mb=1234,
        gres=(("gpu:h100", 2),),
        partition="short",
        account="ml",
        comment='{"pod":"ns/pod"}',
        constraints="h100&ib",
        prefer="ib",
        current_working_directory="/var/tmp",
        priority=4321,
        excluded_nodes=("node-2",),
        required_nodes=("node-1",),
        user_id=2001,
        group_id=2002,
        time_limit_minutes=4,
        admin_comment="key",
    )
    job = await bench.read(await bench.slurm.submit(asked, next(bench.ids)))
    assert job.name == asked.name
    assert (job.cpus_per_node, job.memory_mb, job.node_count) == (3, 1234, 1)
    assert job.tres_per_node == "gres/gpu:h100:2"
    assert job.partition == "short"
    assert job.account == "ml"
    assert job.comment == asked.comment
    assert (job.constraints, job.prefer) == ("h100&ib", "ib")
    assert job.current_working_directory == asked.current_working_directory
    assert job.priority == 4321
    assert job.excluded_nodes == ("node-2",)
    assert job.required_nodes == ("node-1",)
    assert (job.user_id, job.group_id) == (2001, 2002)
    assert job.user_name == "alice"
    assert job.time_limit_minutes == 4
    assert job.admin_comment == "key"
    assert not job.requeue
    assert job.state.pending


async def test_nodes_may_be_given_as_hostlist_expressions(bench: Bench) -> None:
    await bench.fill()
    asked = await bench.submit(gres=(("gpu", 1),), required_nodes=("node-[1-2]",))
    assert set((await bench.read(asked)).required_nodes) == {"node-1", "node-2"}
    forbidden_because = await bench.submit(gres=(("gpu", 1),), excluded_nodes=("node-[1]",))
    assert (await bench.read(forbidden_because)).excluded_nodes == ("node-1",)
    await bench.slurm.update(forbidden_because, JobChanges(excluded_nodes=("node-[2]",)))
    assert (await bench.read(forbidden_because)).excluded_nodes == ("node-2",)


async def test_the_defaults_are_the_users_group_and_the_default_partition(bench: Bench) -> None:
    job = await bench.read(await bench.submit(user_id=2001))
    assert (job.user_id, job.group_id) == (2001, 2001)
    assert (await bench.read(await bench.submit())).partition == "main"


async def test_user_that_slurmctld_cannot_resolve_has_no_name(bench: Bench) -> None:
    job = await bench.read(await bench.submit(user_id=4242))
    assert (job.user_id, job.user_name) == (4242, "")


async def test_priority_zero_holds_a_job(bench: Bench) -> None:
    job = await bench.read(await bench.submit(priority=0))
    assert job.held
    assert job.reason == "JobHeldUser"


async def test_constraints_and_exclusions_choose_the_node(bench: Bench) -> None:
    assert (await bench.allocate(constraints="h100&ib")).nodes == ("node-1",)
    assert (await bench.allocate(excluded_nodes=("node-1",))).nodes == ("node-2",)
    assert (await bench.allocate(required_nodes=("node-2",))).nodes == ("node-2",)


async def test_a_job_with_extra_required_nodes_gets_a_free_node(bench: Bench) -> None:
    both: dict[str, Any] = {"required_nodes": NODES, "gres": (("gpu", GPUS),)}
    assert (await bench.allocate(**both, excluded_nodes=("node-1",))).nodes == ("node-2",)
    assert (await bench.allocate(**both)).nodes == ("node-1",)
    waits = await bench.submit(**both)
    await bench.until_waiting_for(waits, "Resources")
    await bench.slurm.update(waits, JobChanges(excluded_nodes=("node-2",)))
    assert (await bench.state(waits)).pending


async def test_a_job_with_extra_required_nodes_gets_a_node_with_its_features(bench: Bench) -> None:
    for nodes in (NODES, NODES[::-1]):
        assert (await bench.allocate(required_nodes=nodes, constraints="ib")).nodes == ("node-1",)


async def test_a_job_with_extra_required_nodes_gets_an_undrained_node(bench: Bench) -> None:
    await bench.drain("node-1")
    try:
        assert (await bench.allocate(required_nodes=NODES)).nodes == ("node-2",)
    finally:
        await bench.resume("node-1")


async def test_the_longest_time_limit_is_applied_exactly(bench: Bench) -> None:
    """With a limit of one minute more, Slurm would end the job after 44 seconds."""
    job = await bench.allocate(time_limit_minutes=MOST_MINUTES)
    assert job.time_limit_minutes == MOST_MINUTES
    assert job.start_time is not None
    assert job.end_time == job.start_time + 60 * MOST_MINUTES


async def test_an_exclusive_job_gets_all_cpus_and_gpus_of_its_node(bench: Bench) -> None:
    job = await bench.allocate(cpus=1, shared=Sharing.NONE)
    assert job.cpus_allocated == CPUS
    assert job.gres == (f"gpu:h100:{GPUS}(IDX:0-{GPUS - 1})",)


@pytest.mark.parametrize("cpus", [0, -1, 65_534, 65_537, 2**32 + 1])
async def test_a_number_of_cpus_that_slurm_would_misread_is_rejected(bench: Bench, cpus: int) -> None:
    with pytest.raises(InvalidRequest):
        await bench.allocate(cpus=cpus)
    with pytest.raises(InvalidRequest):
        await bench.submit(cpus=cpus)


@pytest.mark.parametrize("shared", [None, Sharing.ALLOWED, Sharing.MCS, Sharing.TOPO])
async def test_jobs_that_share_a_node_get_only_the_requested_cpus(
    bench: Bench, shared: str | None
) -> None:
    job = await bench.allocate(cpus=2, shared=shared)
    assert job.cpus_allocated == 2
    await bench.allocate(cpus=2, required_nodes=job.nodes)


async def test_a_node_shared_by_one_user_runs_only_jobs_of_that_user(bench: Bench) -> None:
    first = await bench.submit(user_id=2001, shared=Sharing.USER, required_nodes=("node-1",))
    await bench.until_running(first)
    with pytest.raises(NoRoomNow):
        await bench.allocate(required_nodes=("node-1",))
    second = await bench.submit(user_id=2001, shared=Sharing.USER, required_nodes=("node-1",))
    assert (await bench.until_running(second)).nodes == ("node-1",)
