"""Tests of limits and accounting records of users that exist only in the directory. slurmctld and
slurmdbd cannot look these users up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from deploy.local.accounting import Account, User, declare
from deploy.local.cluster import Cluster
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from tests.eventually import eventually
from tests.login.client import KeyPair, key_pair
from tests.login.conftest import CONFIGLESS
from tests.login.directory_server import DirectoryServer, one_of_each
from tests.login.login_pod import LoginPod, World

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=DEBIAN_SUITES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def login(
    release: str,
    directory: DirectoryServer,
    authority: trustme.CA,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[LoginPod]:
    """A login Pod of a Slurm cluster that rejects users without an association. carol has an association
    in slurmdbd."""
    spec = ClusterSpec(
        nodes=1,
        kubernetes=False,
        extender=False,
        accounting=True,
        release=release,
        slurm_conf=(CONFIGLESS,),
    )
    with Cluster.up(spec, tmp_path_factory.mktemp("slurm")) as slurm:
        declare(slurm, Account("ml"), User("carol", accounts=("ml",)))
        world = World(directory, authority, slurm)
        with LoginPod.started(world, tmp_path_factory.mktemp("pod") / "login", {}) as pod:
            yield pod


def test_a_user_with_an_association_runs_jobs_and_sees_their_records(
    login: LoginPod, carols_key: KeyPair
) -> None:
    done = login.client.by_key("carol", carols_key, "sbatch --parsable --wrap=true")
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    records = f"sacct -nPX -j {job} -o User,Account,State"
    eventually(
        lambda: login.client.by_key("carol", carols_key, records).stdout == "carol|ml|COMPLETED\n",
        "sacct has the job",
        30,
    )


def test_a_user_without_an_association_runs_no_jobs(
    login: LoginPod, directory: DirectoryServer, release: str, tmp_path: Path
) -> None:
    key = key_pair(tmp_path, "quentin")
    quentin = one_of_each("quentin", 5200, release, key)
    directory.add(quentin)
    done = login.client.by_key(quentin.name, key, "sbatch --parsable --wrap=true")
    assert "Invalid account or account/partition combination" in done.stderr
