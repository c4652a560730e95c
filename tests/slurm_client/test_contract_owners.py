"""The contract: jobs that are allocated at once as their owner's, whose name is the lock."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

import pytest

from slurm_client import ownership
from slurm_client.errors import InvalidRequest, NameTaken, NoRoomNow, OtherJob
from slurm_client.model import JobChanges
from slurm_client.rest import SlurmRest
from slurm_client.tokens import StaticToken
from tests.slurm_client.bench import ALICE, BOB, GPUS, NOBODY, spec

if TYPE_CHECKING:
    from deploy.local.cluster import Cluster
    from slurm_client.model import Job
    from tests.slurm_client.bench import Bench

_numbers = itertools.count(1)


def fresh_name() -> str:
    return f"owned-{next(_numbers)}"


async def allocated(bench: Bench, **wanted: object) -> Job:
    asked = spec(**{"user_id": ALICE, "name": fresh_name(), **wanted})
    return await bench.read(await bench.slurm.allocate_as_owner(asked))


async def test_it_runs_at_once_as_its_owner(bench: Bench) -> None:
    job = await allocated(bench, gres=(("gpu", 1),), comment="nightly")
    assert job.state.running
    assert (job.user_id, job.group_id) == (ALICE, ALICE)
    assert (job.gres, job.comment, job.admin_comment) == (("gpu:h100:1(IDX:0)",), "nightly", "")


async def test_slurm_counts_its_ids_up(bench: Bench) -> None:
    """Far below those that are chosen, which do not move the count."""
    first = await allocated(bench)
    chosen = await bench.allocate()
    second = await allocated(bench)
    assert first.id < second.id < chosen.id


async def test_the_token_of_root_may_choose_ids(bench: Bench) -> None:
    before = await bench.slurm.all_states()
    assert await bench.slurm.may_choose_ids()
    assert set(await bench.slurm.all_states()) <= set(before)


@pytest.mark.real
@pytest.mark.parametrize(("user", "may"), [("root", True), ("slurm", True), ("alice", False)])
async def test_a_token_of_another_user_may_not(cluster: Cluster, user: str, may: bool) -> None:
    slurm = SlurmRest(cluster.slurmrestd_url, StaticToken(cluster.mint_token(user)))
    before = await slurm.all_states()
    assert await slurm.may_choose_ids() is may
    assert set(await slurm.all_states()) <= set(before)
    told = await slurm.configuration()
    assert told.slurm_user == ("slurm" if slurm.capabilities.configuration else None)
    await slurm.aclose()


async def test_the_next_id_is_told_where_the_configuration_is(bench: Bench) -> None:
    before = (await bench.slurm.configuration()).next_job_id
    job = await allocated(bench)
    after = (await bench.slurm.configuration()).next_job_id
    if bench.slurm.capabilities.configuration:
        assert before is not None
        assert after is not None
        assert before <= job.id < after


async def test_a_second_job_of_the_name_is_not_made_while_the_first_runs(bench: Bench) -> None:
    job = await allocated(bench)
    before = await bench.slurm.all_states()
    with pytest.raises(NameTaken) as taken:
        await allocated(bench, name=job.name)
    assert taken.value.number == 2038
    now = await bench.slurm.all_states()
    assert all(now[job_id].base == "FAILED" for job_id in now.keys() - before.keys())


async def test_a_job_that_waits_under_a_higher_id_does_not_hold_the_name(bench: Bench) -> None:
    name = fresh_name()
    await bench.submit(name=name, user_id=ALICE, priority=0)
    assert (await allocated(bench, name=name)).state.running


async def test_the_name_is_free_again_when_the_job_has_ended(bench: Bench) -> None:
    job = await allocated(bench)
    await bench.slurm.cancel(job.id, job.name)
    again = await allocated(bench, name=job.name)
    assert again.state.running
    assert again.id != job.id


async def test_the_name_is_free_again_when_the_owner_renames_the_job(bench: Bench) -> None:
    job = await allocated(bench)
    await bench.edit(job.id, name=b"mine", comment=b"")
    again = await allocated(bench, name=job.name)
    with pytest.raises(OtherJob):
        await bench.slurm.cancel(job.id, job.name)
    await bench.slurm.cancel(again.id, job.name)
    assert (await bench.read(job.id)).state.running


async def test_another_users_job_may_have_the_name(bench: Bench) -> None:
    job = await allocated(bench)
    assert (await allocated(bench, user_id=BOB, name=job.name)).user_id == BOB


async def test_the_admin_comment_can_be_written_afterwards(bench: Bench) -> None:
    job = await allocated(bench)
    await bench.slurm.update(job.id, JobChanges(admin_comment="key"))
    assert (await bench.read(job.id)).admin_comment == "key"


async def test_without_room_nothing_is_queued_and_the_name_stays_free(bench: Bench) -> None:
    held, name = await bench.fill(), fresh_name()
    with pytest.raises(NoRoomNow):
        await allocated(bench, name=name, gres=(("gpu", 1),))
    states = await bench.slurm.all_states()
    assert [job_id for job_id, state in states.items() if state.pending] == []
    await bench.slurm.update(held[0], JobChanges(comment="it goes"))
    assert (await allocated(bench, name=name, cpus=1)).state.running


async def test_it_does_not_overtake_a_waiting_job_of_its_priority(bench: Bench) -> None:
    """Slurm compares the seconds of submission, and then the ids: its own are lower than chosen ones."""
    await bench.fill()
    waiting = await bench.read(await bench.submit(gres=(("gpu", 1),)))
    assert waiting.submit_time is not None
    await asyncio.sleep(waiting.submit_time + 1.1 - time.time())  # its clock is a little behind
    with pytest.raises(NoRoomNow):
        await allocated(bench, cpus=1)


@pytest.mark.parametrize(
    "wanted",
    [{"user_id": None}, {"group_id": BOB}, {"priority": 7}, {"admin_comment": "key"}],
    ids=str,
)
async def test_what_an_owner_may_not_ask_is_refused_here(
    bench: Bench, wanted: dict[str, object]
) -> None:
    before = await bench.slurm.all_states()
    with pytest.raises(InvalidRequest):
        await bench.slurm.allocate_as_owner(spec(**{"user_id": ALICE, "name": fresh_name(), **wanted}))
    assert await bench.slurm.all_states() == before


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        ({"partition": "nowhere"}, 2000),
        ({"constraints": "quantum"}, 2029),
        ({"gres": (("gpu", GPUS + 1),)}, 2014),
    ],
    ids=str,
)
async def test_what_can_never_be_is_an_invalid_request(
    bench: Bench, wanted: dict[str, object], number: int
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await allocated(bench, **wanted)
    assert refused.value.number == number


async def test_a_user_that_slurm_cannot_resolve_is_nobody(bench: Bench) -> None:
    assert (await allocated(bench, user_id=NOBODY)).user_id == ownership.NOBODY


async def test_with_accounting_a_user_that_slurm_cannot_resolve_has_no_account(office: Bench) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await allocated(office, user_id=NOBODY)
    assert refused.value.number == 2045


async def test_what_the_owner_may_not_use_is_slurms_own_refusal(office: Bench) -> None:
    for wanted, number in (({"account": "web"}, 2045), ({"qos": "bobs"}, 2066)):
        with pytest.raises(InvalidRequest) as refused:
            await allocated(office, **wanted)
        assert refused.value.number == number
    with (
        office.reserved("bobs", ["node-2"], ["bob"]),
        pytest.raises(InvalidRequest) as refused,
    ):
        await allocated(office, reservation="bobs")
    assert refused.value.number == 2052


async def test_the_owners_own_limits_count(office: Bench) -> None:
    first = await allocated(office, qos="one-runs")
    assert (first.account, first.qos) == ("ml", "one-runs")
    with pytest.raises(NoRoomNow):
        await allocated(office, qos="one-runs")
