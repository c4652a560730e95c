"""Contract tests of reading, changing and ending jobs."""

import asyncio

import pytest

from slurm_client.errors import InvalidRequest, NoRoomNow, OtherJob
from slurm_client.model import JobChanges
from tests.eventually import until
from tests.slurm_client.bench import CPUS, GPUS, Bench

# -- reading


async def test_unknown_jobs_are_none_and_absent_from_states(bench: Bench) -> None:
    job, unknown = await bench.allocate(), next(bench.ids)
    states = await bench.slurm.states([job.id, unknown])
    assert set(states) == {job.id}
    assert states[job.id].running
    assert await bench.slurm.states([]) == {}
    assert await bench.slurm.job(unknown) is None


async def test_states_of_many_ids_are_read_in_one_call(bench: Bench) -> None:
    job_ids = [await bench.submit(priority=0) for _ in range(20)]
    many = [*job_ids, *(next(bench.ids) for _ in range(580))]
    states = await bench.slurm.states(many)
    assert set(states) == set(job_ids)
    assert all(state.pending for state in states.values())


async def test_all_states_include_ended_jobs(bench: Bench) -> None:
    job = await bench.allocate()
    await bench.slurm.cancel(job.id)
    assert (await bench.slurm.all_states())[job.id].ended


async def test_the_grant_of_a_job_can_be_read_without_the_job(bench: Bench) -> None:
    for wanted in ({"gres": (("gpu", 2),)}, {"cpus": 2}, {"gres": (("gpu:h100", 1),), "nodes": 2}):
        job = await bench.allocate(**wanted)
        assert await bench.slurm.grant(job.id) == job.grant


async def test_suspended_job_has_its_grant(bench: Bench) -> None:
    """A suspended job keeps its cores, and resumes on these cores. For a suspended job, 26.05 rejects
    GET resources/{job_id} (error 2085)."""
    job = await bench.allocate(gres=(("gpu", 1),))
    await bench.suspend_job(job.id)
    assert job.grant.cores
    assert await bench.slurm.grant(job.id) == (await bench.read(job.id)).grant == job.grant


async def test_waiting_ended_and_unknown_jobs_have_no_grant(bench: Bench) -> None:
    held = await bench.fill()
    waiting = await bench.submit(gres=(("gpu", 1),))
    assert await bench.slurm.grant(waiting) is None
    assert await bench.slurm.grant(next(bench.ids)) is None
    await bench.slurm.cancel(waiting)
    assert await bench.slurm.grant(waiting) is None
    await bench.slurm.cancel(held[0])
    assert await bench.slurm.grant(held[0]) is None


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


async def test_an_empty_update_does_nothing(bench: Bench) -> None:
    await bench.slurm.update(next(bench.ids), JobChanges())


# -- cancel


async def test_a_cancelled_job_ends_and_its_node_is_free(bench: Bench) -> None:
    held = await bench.fill()
    await bench.slurm.cancel(held[0])
    assert (await bench.state(held[0])).base == "CANCELLED"

    async def free() -> bool:
        nodes = await bench.slurm.nodes()  # 24.11 starts no immediate job on an IDLE+COMPLETING node
        return any("IDLE" in one.states and "COMPLETING" not in one.states for one in nodes)

    await until(free, within_s=15)
    assert (await bench.allocate(gres=(("gpu", GPUS),))).state.running


async def test_a_waiting_job_can_be_cancelled(bench: Bench) -> None:
    job_id = await bench.submit(priority=0)
    await bench.slurm.cancel(job_id)
    state = await bench.state(job_id)
    assert state.base == "CANCELLED"
    assert state.ended


async def test_cancelling_an_ended_or_unknown_job_succeeds(bench: Bench) -> None:
    job = await bench.allocate()
    for _ in range(2):
        await bench.slurm.cancel(job.id)
    await bench.slurm.cancel(next(bench.ids))


async def test_a_cancel_with_a_job_name_ends_only_a_job_of_that_name(bench: Bench) -> None:
    job = await bench.allocate(name="mine@default")
    with pytest.raises(OtherJob, match="mine@default"):
        await bench.slurm.cancel(job.id, "another@default")
    assert (await bench.read(job.id)).state.running
    for _ in range(2):
        await bench.slurm.cancel(job.id, "mine@default")
    assert (await bench.state(job.id)).base == "CANCELLED"
    await bench.slurm.cancel(next(bench.ids), "mine@default")


@pytest.mark.parametrize("odd", [b"\xff", b"a\xc3", b"a\nb\tc", b"a\x01\x1b[31m\x7f"])
async def test_a_job_with_unusual_bytes_in_its_name_can_be_read_and_cancelled(
    bench: Bench, odd: bytes
) -> None:
    text = odd.decode(errors="replace")
    job = await bench.allocate()
    await bench.edit(job.id, name=odd, comment=odd)
    read = await bench.read(job.id)
    assert (read.name, read.comment, read.state.running) == (text, text, True)
    assert (await bench.state(job.id)).running
    with pytest.raises(OtherJob):
        await bench.slurm.cancel(job.id, job.name)
    if text.encode() != odd:  # the real name is not UTF-8, and no client can send it
        with pytest.raises(OtherJob):
            await bench.slurm.cancel(job.id, text)
    assert (await bench.read(job.id)).state.running
    await bench.slurm.cancel(job.id, text if text.encode() == odd else None)
    assert (await bench.state(job.id)).base == "CANCELLED"
    assert (await bench.read(job.id)).comment == text


async def test_an_ended_job_has_an_end_time_and_no_gpus(bench: Bench) -> None:
    job = await bench.allocate(gres=(("gpu", 1),))
    await bench.slurm.cancel(job.id)

    async def read() -> bool:
        ended = await bench.read(job.id)
        return (
            (ended.gres, ended.cores) == ((), ())
            and ended.end_time is not None
            and not ended.state.completing
        )

    await until(read, within_s=15)


async def test_the_cores_of_a_suspended_job_go_to_the_next_job(bench: Bench) -> None:
    """While a job is suspended, Slurm gives its cores to other jobs, but keeps its memory and devices.
    At the resumption, Slurm does not check the cores, so both jobs then run on the same cores."""
    whole = {"required_nodes": ("node-1",), "cpus": CPUS}
    first = await bench.allocate(**whole, gres=(("gpu", 1),))
    assert first.suspend_time is None
    await bench.suspend_job(first.id)
    assert (await bench.state(first.id)).suspended
    node = await bench.see("node-1")
    assert "MIXED" in node.states
    assert (node.cpus_allocated, node.memory_allocated_mb) == (0, 100)
    with pytest.raises(NoRoomNow):
        await bench.allocate(**whole, gres=(("gpu", GPUS),))
    second = await bench.allocate(**whole)
    await bench.resume_job(first.id)
    first = await bench.read(first.id)
    assert (first.state.running, first.cores) == (True, second.cores)
    assert first.suspend_time is not None
    await bench.slurm.cancel(first.id)
    with pytest.raises(NoRoomNow):
        await bench.allocate(**whole)


async def test_a_job_that_its_owner_holds_waits_until_the_release(bench: Bench) -> None:
    filling, a_gpu = await bench.fill(), (("gpu", 1),)
    job_id, other = await bench.submit(gres=a_gpu), await bench.submit(gres=a_gpu)
    await bench.hold_job(job_id)
    held = await bench.read(job_id)
    assert (held.held, held.reason) == (True, "JobHeldUser")
    for each in filling:
        await bench.slurm.cancel(each)
    await bench.until_running(other)
    assert (await bench.state(job_id)).pending
    await bench.release_job(job_id)
    await bench.until_running(job_id)


async def test_many_tasks_may_use_one_client(bench: Bench) -> None:
    job_ids = await asyncio.gather(*(bench.submit(priority=0) for _ in range(40)))
    await asyncio.gather(*(bench.slurm.cancel(job_id) for job_id in job_ids))
    states = await bench.slurm.states(job_ids)
    assert {state.base for state in states.values()} == {"CANCELLED"}
    assert len(states) == 40


async def test_closing_twice_is_harmless(bench: Bench) -> None:
    await bench.slurm.aclose()
    await bench.slurm.aclose()
