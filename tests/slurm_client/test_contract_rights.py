"""Contract tests of rights: the accounts, QOS and reservations of a user, the jobs of an unknown user,
and the right of a token's user to choose job ids."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from deploy.local.cluster import Cluster
from slurm_client.rest.client import SlurmRest
from slurm_client.rights import Association
from slurm_client.tokens import StaticToken
from tests.slurm_client.bench import ACCOUNTING, ALICE, BOB, NOBODY, Bench
from tests.slurm_client.conftest import REAL, bench_of


@pytest.fixture(params=["in_memory_without_external_jobs", *REAL])
async def office(
    request: pytest.FixtureRequest, cluster_of: Callable[[str, bool], Cluster]
) -> AsyncIterator[Bench]:
    """A bench with accounting. The Slurm is in memory without EXTERNAL_JOB, or real."""
    async with bench_of(request.param, cluster_of, ACCOUNTING) as bench:
        yield bench


async def test_a_user_has_accounts_with_their_qos(office: Bench) -> None:
    rights = await office.slurm.rights(ALICE)
    assert (rights.user, rights.unknown) == ("alice", False)
    assert rights.associations is not None
    has = {each.account: each for each in rights.associations}
    assert has["lab"] == Association("lab", ("normal",))
    assert (has["ml"].default, has["lab"].default) == (True, False)
    assert "small" in has["ml"].qos
    assert has.keys() == {"ml", "lab"}


async def test_rights_list_only_the_reservations_of_the_user(office: Bench) -> None:
    with office.reserved("hers", ["node-1"], ["alice"]), office.reserved("his", ["node-2"], ["bob"]):
        assert (await office.slurm.rights(ALICE)).reservations == ("hers",)
        assert (await office.slurm.rights(BOB)).reservations == ("his",)


async def test_the_rights_of_the_tokens_own_user_can_be_read(office: Bench) -> None:
    rights = await office.slurm.rights(None)
    assert rights.user == "root"
    assert [each.account for each in rights.associations or ()] == ["root"]


async def test_a_user_that_slurmctld_cannot_resolve_is_unknown(office: Bench) -> None:
    assert (await office.slurm.rights(NOBODY)).unknown
    with office.directory_away("alice"):
        assert (await office.slurm.rights(ALICE)).unknown
    assert (await office.slurm.rights(ALICE)).user == "alice"


async def test_slurmctld_holds_the_batch_job_of_an_unknown_user(office: Bench) -> None:
    """Slurm needs the user's record for the credential of a batch job. An EXTERNAL_JOB needs no
    credential, so an EXTERNAL_JOB runs."""
    with office.directory_away("alice"):
        job_id = await office.submit(user_id=ALICE)
        if office.slurm.capabilities.external_jobs:
            await office.until_running(job_id)
            return
        await office.until_waiting_for(job_id, "JobHeldAdmin")
    job: Any = await office.read(job_id)
    assert (job.held, job.restart_count) == (True, 1)
    assert "slurm_cred_create failure" in job.system_comment


async def test_the_token_of_root_may_choose_job_ids(bench: Bench) -> None:
    before = await bench.slurm.all_states()
    assert await bench.slurm.may_choose_ids()
    assert set(await bench.slurm.all_states()) <= set(before)


@pytest.mark.real
@pytest.mark.parametrize(("user", "may"), [("root", True), ("slurm", True), ("alice", False)])
async def test_only_tokens_of_root_and_slurm_user_may_choose_job_ids(
    cluster: Cluster, user: str, may: bool
) -> None:
    slurm = SlurmRest(cluster.slurmrestd_url, StaticToken(cluster.mint_token(user)))
    before = await slurm.all_states()
    assert await slurm.may_choose_ids() is may
    assert set(await slurm.all_states()) <= set(before)
    told = await slurm.configuration()
    assert told.slurm_user == ("slurm" if slurm.capabilities.configuration else None)
    await slurm.aclose()
