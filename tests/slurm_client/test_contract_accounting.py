"""Contract tests of accounting: users' access to accounts, QOS and reservations, and the limits on jobs.
bench.ACCOUNTING defines accounts, QOS and limits."""

from typing import Any

import pytest

from slurm_client.errors import InvalidRequest, JobIdTaken, NoRoomNow, RetryLater
from tests.eventually import until
from tests.slurm_client.bench import ALICE, BOB, NOBODY, Bench, RealBench, spec

Wanted = dict[str, Any]


# -- access


async def test_a_job_runs_under_the_account_and_qos_that_it_names(office: Bench) -> None:
    job_id = await office.submit(user_id=ALICE, account="lab", qos="normal")
    job = await office.until_running(job_id)
    assert (job.account, job.qos, job.user_id) == ("lab", "normal", ALICE)


async def test_a_job_without_account_and_qos_gets_the_defaults_of_its_user(office: Bench) -> None:
    for user_id, defaults in ((ALICE, ("ml", "normal")), (BOB, ("web", "bobs"))):
        job = await office.until_running(await office.submit(user_id=user_id))
        assert (job.account, job.qos) == defaults
    job = await office.allocate()
    assert (job.account, job.qos) == ("root", "normal")


@pytest.mark.parametrize(
    "wanted",
    [
        {"user_id": BOB, "account": "ml"},
        {"user_id": BOB, "account": "nowhere"},
        {"user_id": NOBODY},
        {"user_id": NOBODY, "account": "ml"},
        {"account": "ml"},  # a job of root: root has no access to this account
    ],
    ids=str,
)
async def test_an_account_without_access_is_an_invalid_request(office: Bench, wanted: Wanted) -> None:
    job_id = next(office.ids)
    with pytest.raises(InvalidRequest, match=r"(?i)account") as refused:
        await office.slurm.submit(spec(**wanted), job_id)
    assert refused.value.number == 2045
    assert await office.slurm.job(job_id) is None


async def test_an_allocation_for_an_account_without_access_is_refused_too(office: Bench) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await office.allocate(account="ml")
    assert refused.value.number == 2045


@pytest.mark.parametrize("qos", ["bobs", "nowhere"])
async def test_a_qos_without_access_is_an_invalid_request(office: Bench, qos: str) -> None:
    with pytest.raises(InvalidRequest, match=r"(?i)qos") as refused:
        await office.submit(user_id=ALICE, qos=qos)
    assert refused.value.number == 2066


# -- limits on running jobs


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"user_id": ALICE, "qos": "one-runs"}, "QOSMaxJobsPerUserLimit"),
        ({"user_id": ALICE, "qos": "one-runs-of-all"}, "QOSGrpJobsLimit"),
        ({"user_id": ALICE, "account": "lab"}, "AssocMaxJobsLimit"),
    ],
    ids=str,
)
async def test_a_job_over_a_limit_waits_until_another_job_ends(
    office: Bench, wanted: Wanted, reason: str
) -> None:
    first = await office.submit(**wanted)
    await office.until_running(first)
    second = await office.submit(**wanted)
    await office.until_waiting_for(second, reason)
    await office.slurm.cancel(first)
    await office.until_running(second)


async def test_a_limit_applies_to_each_user_or_to_all_users(office: Bench) -> None:
    for qos in ("one-runs", "one-runs-of-all"):
        await office.until_running(await office.submit(user_id=ALICE, qos=qos))
    await office.until_running(await office.submit(user_id=BOB, qos="one-runs"))
    waits = await office.submit(user_id=BOB, qos="one-runs-of-all")
    await office.until_waiting_for(waits, "QOSGrpJobsLimit")


async def test_a_job_that_waits_for_a_limit_does_not_delay_other_jobs(office: Bench) -> None:
    await office.until_running(await office.submit(user_id=ALICE, qos="one-runs"))
    waits = await office.submit(user_id=ALICE, qos="one-runs", priority=1000)
    await office.until_waiting_for(waits, "QOSMaxJobsPerUserLimit")
    await office.until_running(await office.submit(user_id=BOB))
    assert (await office.allocate()).state.running


async def test_an_allocation_over_a_limit_uses_up_its_id_and_a_submission_waits(office: Bench) -> None:
    first = await office.allocate(qos="one-runs")
    failed_before_start = next(office.ids)
    with pytest.raises(NoRoomNow) as refused:
        await office.slurm.allocate(spec(qos="one-runs"), failed_before_start)
    assert refused.value.number == 2050
    assert (await office.state(failed_before_start)).base == "FAILED"
    with pytest.raises(JobIdTaken):
        await office.slurm.submit(spec(qos="one-runs"), failed_before_start)
    waits = await office.submit(qos="one-runs")
    await office.until_waiting_for(waits, "QOSMaxJobsPerUserLimit")
    await office.slurm.cancel(first.id)
    await office.until_running(waits)


async def test_a_job_that_is_larger_than_its_qos_allows_waits(office: Bench) -> None:
    job_id = await office.submit(user_id=ALICE, qos="small", cpus=3)
    await office.until_waiting_for(job_id, "QOSMaxCpuPerJobLimit")
    with pytest.raises(NoRoomNow):
        await office.allocate(qos="small", cpus=3)
    assert (await office.allocate(qos="small", cpus=2)).state.running


async def test_a_job_behind_a_job_that_waits_for_nodes_does_not_show_its_limit(office: Bench) -> None:
    """The second job exceeds its QOS for ever, but shows only the reason `Priority`: Slurm does not
    check the limits of a job while an earlier job waits for nodes."""
    await office.fill()
    first = await office.submit(gres=(("gpu", 1),))
    await office.until_waiting_for(first, "Resources")
    behind = await office.submit(user_id=ALICE, qos="small", cpus=3, gres=(("gpu", 1),))
    await office.until_waiting_for(behind, "Priority")


# -- limits on submissions


async def test_a_submission_over_a_limit_leaves_no_job_and_succeeds_later(office: Bench) -> None:
    first = await office.submit(user_id=ALICE, qos="one-submitted")
    asked, job_id = spec(user_id=ALICE, qos="one-submitted"), next(office.ids)
    with pytest.raises(RetryLater, match=r"(?i)polic|limit") as refused:
        await office.slurm.submit(asked, job_id)
    assert refused.value.number == 2050
    assert await office.slurm.job(job_id) is None
    await office.slurm.cancel(first)
    await office.until_running(await office.slurm.submit(asked, job_id))


async def test_an_allocation_over_a_submission_limit_raises_no_room_now(office: Bench) -> None:
    await office.submit(qos="one-submitted")
    with pytest.raises(NoRoomNow):
        await office.allocate(qos="one-submitted")


async def test_a_job_too_large_for_its_qos_gets_the_error_number_of_a_full_qos(office: Bench) -> None:
    # The extender submits such a job again and again, because Slurm's error does not show that the job
    # can never start.
    with pytest.raises(RetryLater) as refused:
        await office.submit(user_id=ALICE, qos="small-or-denied", cpus=3)
    assert refused.value.number == 2050


# -- reservations


async def test_a_reservation_admits_its_users_to_its_nodes(office: Bench) -> None:
    with office.reserved("hers", ["node-2"], ["alice"]):
        job = await office.until_running(await office.submit(user_id=ALICE, reservation="hers"))
        assert (job.nodes, job.reservation) == (("node-2",), "hers")
        await office.slurm.cancel(job.id)


async def test_a_reservation_refuses_other_users_and_admits_root(office: Bench) -> None:
    with office.reserved("hers", ["node-2"], ["alice"]):
        job_id = next(office.ids)
        with pytest.raises(InvalidRequest, match=r"(?i)reservation") as refused:
            await office.slurm.submit(spec(user_id=BOB, reservation="hers"), job_id)
        assert refused.value.number == 2052
        assert await office.slurm.job(job_id) is None
        job = await office.allocate(reservation="hers")
        assert job.nodes == ("node-2",)
        await office.slurm.cancel(job.id)


async def test_jobs_outside_a_reservation_do_not_run_on_its_nodes(office: Bench) -> None:
    with office.reserved("hers", ["node-2"], ["alice"]):
        assert all(node.schedulable for node in await office.slurm.nodes())
        waits = await office.submit(required_nodes=("node-2",))
        await office.until_waiting_for(waits, "ReqNodeNotAvail")
        with pytest.raises(NoRoomNow):
            await office.allocate(required_nodes=("node-2",))
        assert (await office.allocate(priority=10)).nodes == ("node-1",)
    await office.until_running(waits)


async def test_a_job_cannot_require_a_node_outside_its_reservation(office: Bench) -> None:
    with office.reserved("hers", ["node-2"], ["alice"]):
        with pytest.raises(InvalidRequest) as refused:
            await office.submit(user_id=ALICE, reservation="hers", required_nodes=("node-1",))
        assert refused.value.number == 2014


# -- accounting records


async def test_the_configuration_contains_the_accounting_settings(real_office: RealBench) -> None:
    told = await real_office.slurm.configuration()
    if real_office.slurm.capabilities.configuration:
        assert told.accounting_storage_type == "accounting_storage/slurmdbd"
        assert told.accounting_store_flags == ("job_comment",)


async def test_accounting_records_the_user_that_cancelled_a_job(office: Bench) -> None:
    job = await office.allocate()
    assert await office.slurm.canceller(job.id) is None
    await office.slurm.cancel(job.id)

    async def told() -> bool:
        return await office.slurm.canceller(job.id) == "root"

    await until(told, within_s=15)
    assert await office.slurm.canceller(next(office.ids)) is None


async def test_without_accounting_the_canceller_of_a_job_is_unknown(bench: Bench) -> None:
    job = await bench.allocate()
    await bench.slurm.cancel(job.id)
    assert await bench.slurm.canceller(job.id) is None
