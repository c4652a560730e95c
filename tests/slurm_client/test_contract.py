"""What every Slurm behind `protocol.Slurm` does: the real 26.05, and the one in memory.

A behaviour that one of the two shows and the other does not is a bug in the latter.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from slurm_client.errors import InvalidRequest, JobIdTaken, NoRoomNow
from slurm_client.model import JobChanges, Sharing
from tests.slurm_client.bench import CPUS, GPUS, MEMORY_MB, NODES, eventually, spec

if TYPE_CHECKING:
    from tests.slurm_client.bench import Bench


# -- the server


async def test_connecting_twice_gives_the_same_capabilities(bench: Bench) -> None:
    first = await bench.slurm.connect()
    assert await bench.slurm.connect() is first
    assert bench.slurm.capabilities is first
    assert first.external_jobs
    assert first.release
    assert first.cluster


async def test_a_healthy_slurm_answers_a_ping(bench: Bench) -> None:
    await bench.slurm.ping()


async def test_the_configuration_names_the_limits_that_job_ids_need(bench: Bench) -> None:
    configuration = await bench.slurm.configuration()
    assert configuration.first_job_id == 1
    assert configuration.max_job_id == 67_043_328
    assert configuration.min_job_age_s
    assert configuration.kill_wait_s
    assert configuration.boot_time
    assert configuration.slurm_user_id is not None


async def test_nodes_tell_what_they_have(bench: Bench) -> None:
    nodes = {node.name: node for node in await bench.slurm.nodes()}
    assert set(nodes) == set(NODES)
    one = nodes["node-1"]
    assert (one.cpus, one.memory_mb) == (CPUS, MEMORY_MB)
    assert one.gres == f"gpu:h100:{GPUS}"
    assert set(one.features) == {"h100", "ib"}
    assert set(one.partitions) == {"main", "short", "closed"}
    assert one.address == "127.0.0.1"
    assert one.schedulable


async def test_a_drained_node_is_not_schedulable_and_a_resumed_one_is(bench: Bench) -> None:
    async def schedulable() -> bool:
        return {node.name: node.schedulable for node in await bench.slurm.nodes()}["node-1"]

    await bench.drain("node-1")
    assert not await schedulable()
    await bench.resume("node-1")
    # Its slurmd has to answer first: NOT_RESPONDING for up to two seconds.
    await eventually(schedulable)


async def test_partitions_tell_their_nodes_and_limits(bench: Bench) -> None:
    partitions = {partition.name: partition for partition in await bench.slurm.partitions()}
    assert partitions["main"].default
    assert partitions["main"].nodes == NODES
    assert partitions["main"].max_time_minutes is None
    assert partitions["main"].up
    assert partitions["short"].max_time_minutes == 5
    assert not partitions["short"].default
    assert not partitions["closed"].up


# -- allocate


async def test_an_allocation_runs_at_once_with_gres_indices(bench: Bench) -> None:
    job = await bench.allocate(cpus=2, gres=(("gpu", 2),))
    assert job.state.running
    assert len(job.nodes) == 1
    assert job.gres == ("gpu:h100:2(IDX:0-1)",)
    assert job.cpus_allocated == 2
    assert job.external


async def test_two_allocations_on_a_node_have_different_gpus(bench: Bench) -> None:
    first = await bench.allocate(gres=(("gpu:h100", 1),), required_nodes=("node-1",))
    second = await bench.allocate(gres=(("gpu:h100", 2),), required_nodes=("node-1",))
    assert first.gres == ("gpu:h100:1(IDX:0)",)
    assert second.gres == ("gpu:h100:2(IDX:1-2)",)


async def test_a_job_of_two_nodes_has_its_gpus_on_each(bench: Bench) -> None:
    job = await bench.allocate(nodes=2, cpus=3, gres=(("gpu", 2),))
    assert job.nodes == NODES
    assert job.gres == ("gpu:h100:2(IDX:0-1)",) * 2
    assert job.node_count == 2
    assert [node.cpus_allocated for node in await bench.slurm.nodes()] == [3, 3]


async def test_a_job_without_gres_has_none(bench: Bench) -> None:
    assert (await bench.allocate()).gres == ()


@pytest.mark.parametrize("cpus", [1, 3, 8])
async def test_cpus_become_exactly_that_many(bench: Bench, cpus: int) -> None:
    job = await bench.allocate(cpus=cpus, memory_mb=200)
    allocated = {node.name: node for node in await bench.slurm.nodes()}[job.nodes[0]]
    assert allocated.cpus_allocated == cpus
    assert allocated.memory_allocated_mb == 200
    assert job.cpus_per_node == cpus


async def test_a_refused_allocation_queues_nothing_and_burns_its_id(bench: Bench) -> None:
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


async def test_an_allocation_may_overtake_a_held_job(bench: Bench) -> None:
    await bench.submit(priority=0)
    assert (await bench.allocate()).state.running


async def test_a_held_allocation_is_refused(bench: Bench) -> None:
    with pytest.raises(NoRoomNow):
        await bench.allocate(priority=0)


async def test_an_allocation_for_another_user_is_refused_here(bench: Bench) -> None:
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
    assert job.external


async def test_a_full_cluster_makes_jobs_wait_and_says_why(bench: Bench) -> None:
    held = await bench.fill()
    first = await bench.submit(gres=(("gpu", GPUS),))
    second = await bench.submit(gres=(("gpu", GPUS),))
    await bench.until_waiting_for(first, "Resources")
    await bench.until_waiting_for(second, "Priority")
    assert (await bench.state(second)).pending
    await bench.slurm.cancel(held[0])
    await bench.until_running(first)
    assert (await bench.state(second)).pending


async def test_the_higher_priority_goes_first(bench: Bench) -> None:
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
    assert job.time_limit_minutes == 4
    assert job.admin_comment == "key"
    assert not job.requeue
    assert job.state.pending


async def test_the_group_is_the_users_number_unless_said(bench: Bench) -> None:
    job = await bench.read(await bench.submit(user_id=2001))
    assert (job.user_id, job.group_id) == (2001, 2001)


async def test_without_a_partition_a_job_goes_to_the_default_one(bench: Bench) -> None:
    assert (await bench.read(await bench.submit())).partition == "main"


async def test_priority_zero_holds_a_job(bench: Bench) -> None:
    job = await bench.read(await bench.submit(priority=0))
    assert job.held
    assert job.reason == "JobHeldUser"


async def test_constraints_and_exclusions_choose_the_node(bench: Bench) -> None:
    assert (await bench.allocate(constraints="h100&ib")).nodes == ("node-1",)
    assert (await bench.allocate(excluded_nodes=("node-1",))).nodes == ("node-2",)
    assert (await bench.allocate(required_nodes=("node-2",))).nodes == ("node-2",)


async def test_a_whole_node_takes_all_its_cpus_and_gpus(bench: Bench) -> None:
    job = await bench.allocate(cpus=1, shared=Sharing.NONE)
    assert job.cpus_allocated == CPUS
    assert job.gres == (f"gpu:h100:{GPUS}(IDX:0-{GPUS - 1})",)


@pytest.mark.parametrize("shared", [None, Sharing.ALLOWED, Sharing.MCS, Sharing.TOPO])
async def test_other_ways_of_sharing_take_what_was_asked_for(bench: Bench, shared: str | None) -> None:
    job = await bench.allocate(cpus=2, shared=shared)
    assert job.cpus_allocated == 2
    await bench.allocate(cpus=2, required_nodes=job.nodes)


async def test_a_node_for_one_user_admits_his_jobs_only(bench: Bench) -> None:
    first = await bench.submit(user_id=2001, shared=Sharing.USER, required_nodes=("node-1",))
    await bench.until_running(first)
    with pytest.raises(NoRoomNow):
        await bench.allocate(required_nodes=("node-1",))
    second = await bench.submit(user_id=2001, shared=Sharing.USER, required_nodes=("node-1",))
    assert (await bench.until_running(second)).nodes == ("node-1",)


# -- job ids of ours


async def test_a_duplicate_id_is_refused_while_the_job_runs(bench: Bench) -> None:
    job = await bench.allocate()
    with pytest.raises(JobIdTaken):
        await bench.slurm.allocate(spec(), job.id)
    with pytest.raises(JobIdTaken):
        await bench.slurm.submit(spec(), job.id)


async def test_a_duplicate_id_is_refused_also_after_the_job_ended(bench: Bench) -> None:
    job = await bench.allocate(admin_comment="first")
    await bench.slurm.cancel(job.id)
    with pytest.raises(JobIdTaken):
        await bench.slurm.submit(spec(admin_comment="second"), job.id)
    assert (await bench.read(job.id)).admin_comment == "first"


# -- what can never be


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        ({"partition": "nowhere"}, 2000),
        ({"required_nodes": ("ghost",)}, 2018),
        ({"excluded_nodes": ("ghost", "node-1")}, 2018),
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
async def test_what_can_never_be_is_an_invalid_request(
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


async def test_a_value_of_shared_that_slurm_lacks_is_refused_here(bench: Bench) -> None:
    job_id = next(bench.ids)
    with pytest.raises(InvalidRequest, match="none, oversubscribe, user, mcs, topo"):
        await bench.slurm.submit(spec(shared="ok"), job_id)
    assert await bench.slurm.job(job_id) is None


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"cpus": 2 * CPUS + 1}, "PartitionConfig"),
        ({"nodes": 3}, "PartitionConfig"),
        ({"partition": "closed"}, "PartitionDown"),
    ],
    ids=str,
)
async def test_what_the_partition_cannot_give_waits_and_is_not_allocated(
    bench: Bench, wanted: dict[str, object], reason: str
) -> None:
    job_id = await bench.submit(**wanted)
    await bench.until_waiting_for(job_id, reason)
    await bench.slurm.cancel(job_id)
    with pytest.raises(NoRoomNow):
        await bench.allocate(**wanted)


async def test_a_time_limit_over_the_partitions_waits_even_when_allocated(bench: Bench) -> None:
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


# -- reading


async def test_unknown_ids_are_absent_from_states(bench: Bench) -> None:
    job = await bench.allocate()
    states = await bench.slurm.states([job.id, next(bench.ids)])
    assert set(states) == {job.id}
    assert states[job.id].running


async def test_states_of_no_ids_are_none(bench: Bench) -> None:
    await bench.allocate()
    assert await bench.slurm.states([]) == {}


async def test_states_of_many_ids_come_together(bench: Bench) -> None:
    job_ids = [await bench.submit(priority=0) for _ in range(20)]
    many = [*job_ids, *(next(bench.ids) for _ in range(580))]
    states = await bench.slurm.states(many)
    assert set(states) == set(job_ids)
    assert all(state.pending for state in states.values())


async def test_all_states_have_ended_jobs_too(bench: Bench) -> None:
    job = await bench.allocate()
    await bench.slurm.cancel(job.id)
    assert (await bench.slurm.all_states())[job.id].ended


async def test_an_unknown_job_is_none(bench: Bench) -> None:
    assert await bench.slurm.job(next(bench.ids)) is None


# -- update


async def test_the_exclusions_of_a_waiting_job_can_be_replaced_and_cleared(bench: Bench) -> None:
    await bench.fill()
    job_id = await bench.submit(gres=(("gpu", 1),), excluded_nodes=("node-1",))
    await bench.slurm.update(job_id, JobChanges(excluded_nodes=("node-2",)))
    assert (await bench.read(job_id)).excluded_nodes == ("node-2",)
    await bench.slurm.update(job_id, JobChanges(excluded_nodes=()))
    assert (await bench.read(job_id)).excluded_nodes == ()


async def test_new_exclusions_decide_where_a_waiting_job_starts(bench: Bench) -> None:
    await bench.drain("node-2")
    try:
        job_id = await bench.submit(excluded_nodes=("node-1",))
        await bench.slurm.update(job_id, JobChanges(excluded_nodes=("node-2",)))
        assert (await bench.until_running(job_id)).nodes == ("node-1",)
    finally:
        await bench.resume("node-2")


async def test_priority_limit_and_comments_of_a_waiting_job_can_be_changed(bench: Bench) -> None:
    await bench.fill()
    job_id = await bench.submit(gres=(("gpu", 1),))
    changes = JobChanges(
        priority=77, time_limit_minutes=9, comment="for all", admin_comment="for admins"
    )
    await bench.slurm.update(job_id, changes)
    job = await bench.read(job_id)
    assert (job.priority, job.time_limit_minutes) == (77, 9)
    assert (job.comment, job.admin_comment) == ("for all", "for admins")


async def test_a_priority_alone_does_not_release_a_held_job(bench: Bench) -> None:
    job_id = await bench.submit(priority=0)
    with pytest.raises(InvalidRequest):
        await bench.slurm.update(job_id, JobChanges(priority=77))
    assert (await bench.read(job_id)).held


async def test_an_update_with_an_unknown_node_is_refused(bench: Bench) -> None:
    job_id = await bench.submit(priority=0, excluded_nodes=("node-1",))
    with pytest.raises(InvalidRequest) as refused:
        await bench.slurm.update(job_id, JobChanges(excluded_nodes=("ghost",)))
    assert refused.value.number == 2018
    assert (await bench.read(job_id)).excluded_nodes == ("node-1",)


async def test_an_unknown_or_an_ended_job_cannot_be_updated(bench: Bench) -> None:
    with pytest.raises(InvalidRequest):
        await bench.slurm.update(next(bench.ids), JobChanges(comment="x"))
    job = await bench.allocate()
    await bench.slurm.cancel(job.id)
    with pytest.raises(InvalidRequest):
        await bench.slurm.update(job.id, JobChanges(comment="x"))


async def test_an_update_of_nothing_does_nothing(bench: Bench) -> None:
    await bench.slurm.update(next(bench.ids), JobChanges())


# -- cancel


async def test_a_cancelled_job_ends_and_its_node_is_free(bench: Bench) -> None:
    held = await bench.fill()
    await bench.slurm.cancel(held[0])
    assert (await bench.state(held[0])).base == "CANCELLED"

    async def free() -> bool:
        return any("IDLE" in node.states for node in await bench.slurm.nodes())

    await eventually(free)
    assert (await bench.allocate(gres=(("gpu", GPUS),))).state.running


async def test_a_waiting_job_can_be_cancelled(bench: Bench) -> None:
    job_id = await bench.submit(priority=0)
    await bench.slurm.cancel(job_id)
    state = await bench.state(job_id)
    assert state.base == "CANCELLED"
    assert state.ended


async def test_cancelling_again_or_what_never_was_is_success(bench: Bench) -> None:
    job = await bench.allocate()
    for _ in range(2):
        await bench.slurm.cancel(job.id)
    await bench.slurm.cancel(next(bench.ids))


async def test_an_ended_job_says_when_and_has_no_gpus(bench: Bench) -> None:
    job = await bench.allocate(gres=(("gpu", 1),))
    await bench.slurm.cancel(job.id)

    async def read() -> bool:
        ended = await bench.read(job.id)
        return ended.gres == () and ended.end_time is not None and not ended.state.completing

    await eventually(read)


async def test_many_tasks_may_use_one_client(bench: Bench) -> None:
    job_ids = await asyncio.gather(*(bench.submit(priority=0) for _ in range(40)))
    await asyncio.gather(*(bench.slurm.cancel(job_id) for job_id in job_ids))
    states = await bench.slurm.states(job_ids)
    assert {state.base for state in states.values()} == {"CANCELLED"}
    assert len(states) == 40


async def test_closing_twice_is_harmless(bench: Bench) -> None:
    await bench.slurm.aclose()
    await bench.slurm.aclose()
