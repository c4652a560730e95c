"""The contract: whose token may choose the id of a job."""

import pytest

from deploy.local.cluster import Cluster
from slurm_client.rest.client import SlurmRest
from slurm_client.tokens import StaticToken
from tests.slurm_client.bench import Bench


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
