"""The barrier of /bind: all members of a gang are bound, or none."""

import asyncio
from collections.abc import Awaitable

import pytest

from extender.bind import gang_barrier
from extender.bind.gang_barrier import GangBarrier, MembersMissing
from extender.bind.job_as_read import JobAsRead
from extender.pod_request.workload import Workload
from slurm_client.errors import Unreachable
from slurm_client.job_state import JobState
from slurm_client.model import Job

GANG = Workload("gang-1", "default", "train", size=3)
JOB = 7


class Gangs:
    """A barrier. The test decides whether a member is bound, and counts the reads of the job."""

    def __init__(self) -> None:
        self.bound: bool | None = False
        """Whether a member is bound. None: the look fails by a defect."""
        self.reads, self.fails = 0, False
        self.barrier = GangBarrier(self._some_bound, self._read)

    async def _some_bound(self, gang: Workload, job_id: int) -> bool:
        assert (gang, job_id) == (GANG, JOB)
        if self.bound is None:
            raise RuntimeError("a defect")
        return self.bound

    async def _read(self, job_id: int) -> JobAsRead:
        self.reads += 1
        await asyncio.sleep(0)
        if self.fails:
            raise Unreachable("slurmrestd is down")
        return JobAsRead(Job(job_id, JobState("RUNNING")))

    def enter(self, *uids: str) -> list[asyncio.Task[None]]:
        """Begins a call for each of the members."""
        return [asyncio.create_task(self.barrier.enter(GANG, JOB, uid)) for uid in uids]

    def leave(self, *uids: str) -> None:
        for uid in uids:
            self.barrier.leave(GANG, JOB, uid)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_barrier, "HOLD_S", 0.2)
    monkeypatch.setattr(gang_barrier, "_LOOKS_S", (0.05,))


async def all_of(calls: list[asyncio.Task[None]]) -> None:
    done: Awaitable[list[None]] = asyncio.gather(*calls)
    async with asyncio.timeout(5):
        await done


async def test_members_pass_together_after_the_last_member_has_entered() -> None:
    gangs = Gangs()
    calls = gangs.enter("a", "b")
    await asyncio.sleep(0.02)
    assert not any(call.done() for call in calls)
    await all_of([*calls, *gangs.enter("c")])


async def test_no_member_passes_without_a_call_for_each_member() -> None:
    gangs = Gangs()
    calls = gangs.enter("a", "b", "b")
    for call in calls:
        with pytest.raises(MembersMissing) as missing:
            await call
        assert missing.value.missing == 1


async def test_a_call_that_left_does_not_count() -> None:
    gangs = Gangs()
    (first,) = gangs.enter("a")
    with pytest.raises(MembersMissing):
        await first
    gangs.leave("a")
    with pytest.raises(MembersMissing):
        await all_of(gangs.enter("b", "c"))
    await all_of(gangs.enter("a"))


async def test_members_follow_a_bound_member() -> None:
    gangs = Gangs()
    gangs.bound = True
    await all_of(gangs.enter("b"))


async def test_calls_fail_at_once_with_a_defect_of_the_look() -> None:
    gangs = Gangs()
    gangs.bound = None
    calls = gangs.enter("a", "b")
    for call in calls:
        with pytest.raises(RuntimeError, match="a defect"):
            await call


async def test_the_next_job_of_a_gang_has_a_closed_barrier() -> None:
    gangs = Gangs()
    await all_of(gangs.enter("a", "b", "c"))
    gangs.leave("a", "b", "c")
    with pytest.raises(MembersMissing):
        await all_of(gangs.enter("a"))


async def test_members_share_one_read_of_the_job() -> None:
    gangs = Gangs()
    await all_of(gangs.enter("a", "b", "c"))
    jobs = await asyncio.gather(*(gangs.barrier.job(GANG, JOB) for _ in "abc"))
    assert [read.job and read.job.id for read in jobs] == [JOB] * 3
    assert gangs.reads == 1


async def test_a_later_member_reads_the_job_again() -> None:
    gangs = Gangs()
    await all_of(gangs.enter("a", "b", "c"))
    await gangs.barrier.job(GANG, JOB)
    await gangs.barrier.job(GANG, JOB)
    assert gangs.reads == 2


async def test_a_failed_read_of_the_job_is_repeated() -> None:
    gangs = Gangs()
    gangs.fails = True
    await all_of(gangs.enter("a", "b", "c"))
    with pytest.raises(Unreachable):
        await gangs.barrier.job(GANG, JOB)
    gangs.fails = False
    assert (await gangs.barrier.job(GANG, JOB)).job is not None


async def test_nothing_is_left_after_the_last_member() -> None:
    gangs = Gangs()
    calls = gangs.enter("a", "b")
    await asyncio.sleep(0.01)
    for call in calls:
        call.cancel()
    gangs.leave("a", "b")
    await asyncio.sleep(0.01)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not others
