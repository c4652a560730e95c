"""Jobs that are asked for by their names: what is found of them, whatever was lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace

import pytest

from extender.control.named_jobs import NamedJobs
from slurm_client.errors import NameTaken, NoRoomNow, OutcomeUnknown, Unreachable
from slurm_client.in_memory import InMemorySlurm
from slurm_client.model import AllStates, JobChanges
from tests.slurm_client.bench import ALICE, BOB, GPUS, InMemoryBench, spec
from wellknown.job_key import JobIdRange

KEY = "slurm-extender/c/default/p/u1/1.0"
ASKED = spec(name="p@default#1", user_id=ALICE, admin_comment=KEY)


class Site(InMemoryBench):
    """A Slurm, and what is known of its jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.known = set[int]()
        self.jobs = NamedJobs(self.slurm, JobIdRange(first=20_000_000), lambda: self.known)


@pytest.fixture
def site() -> Site:
    return Site()


async def test_it_runs_with_its_key(site: Site) -> None:
    job = await site.jobs.allocate(ASKED)
    assert job.state.running
    assert (job.name, job.user_id, job.admin_comment) == (ASKED.name, ALICE, KEY)
    with pytest.raises(NameTaken):
        await site.jobs.allocate(ASKED)
    assert await site.jobs.find(ASKED) == job


@pytest.mark.parametrize("lost", ["allocate_as_owner", "update"])
async def test_what_was_made_is_found_and_signed(site: Site, lost: str) -> None:
    site.controls.lose_reply_of_next(lost)
    with pytest.raises(OutcomeUnknown):
        await site.jobs.allocate(ASKED)
    found = await site.jobs.find(ASKED)
    assert found is not None
    assert found.state.running
    assert found.admin_comment == KEY


async def test_what_was_refused_is_not_found(site: Site) -> None:
    await site.fill()
    wants = replace(ASKED, gres=(("gpu", GPUS),))
    with pytest.raises(NoRoomNow):
        await site.jobs.allocate(wants)
    assert await site.jobs.find(wants) is None


async def test_a_job_of_another_user_name_or_workload_is_another(site: Site) -> None:
    await site.slurm.allocate_as_owner(replace(ASKED, user_id=BOB, admin_comment=""))
    await site.slurm.allocate_as_owner(replace(ASKED, name="p@default", admin_comment=""))
    known = await site.slurm.allocate_as_owner(replace(ASKED, admin_comment=""))
    site.known.add(known)
    assert await site.jobs.find(ASKED) is None


async def test_one_that_has_ended_meanwhile_is_found_as_that(site: Site) -> None:
    job = await site.jobs.allocate(ASKED)
    site.controls.preempt(job.id)
    found = await site.jobs.find(ASKED)
    assert found is not None
    assert (found.id, found.state.base) == (job.id, "PREEMPTED")


async def test_a_job_that_got_the_id_of_one_that_slurm_forgot_keeps_nothing_of_ours(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld is killed between the two calls, and gives the id to a job of bob's."""
    update, before = InMemorySlurm.update, time.time()

    async def late(slurm: InMemorySlurm, job_id: int, changes: JobChanges) -> None:
        monkeypatch.setattr(InMemorySlurm, "update", update)
        slurm.forget_since(before)
        assert await slurm.allocate_as_owner(spec(name="bobs", user_id=BOB)) == job_id
        await update(slurm, job_id, changes)

    monkeypatch.setattr(InMemorySlurm, "update", late)
    with pytest.raises(OutcomeUnknown):
        await site.jobs.allocate(ASKED)
    (job_id,) = [one for one, state in (await site.slurm.all_states()).items() if state.running]
    job = await site.read(job_id)
    assert (job.name, job.admin_comment) == ("bobs", "")
    assert await site.jobs.find(ASKED) is None


async def test_all_who_ask_at_once_share_a_reading(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counter[str]()
    all_states = InMemorySlurm.all_states

    async def counted(slurm: InMemorySlurm) -> AllStates:
        asked["all_states"] += 1
        await asyncio.sleep(0.01)
        return await all_states(slurm)

    monkeypatch.setattr(InMemorySlurm, "all_states", counted)
    await asyncio.gather(*(site.jobs.find(ASKED) for _ in range(100)))
    assert asked["all_states"] <= 2
    await site.jobs.find(ASKED)
    assert asked["all_states"] <= 3


async def test_when_slurm_does_not_answer_the_next_asks_anew(site: Site) -> None:
    site.controls.outage(Unreachable("slurmctld is down"))
    with pytest.raises(Unreachable):
        await site.jobs.find(ASKED)
    site.controls.outage(None)
    assert await site.jobs.find(ASKED) is None
