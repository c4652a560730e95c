"""Tests of jobs of a user who exists only in the directory. slurmctld and slurmd cannot look the user up
(AuthInfo=use_client_ids)."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.spec import DEBIAN_SUITES
from tests.eventually import eventually
from tests.login.client import KeyPair, key_pair
from tests.login.directory_server import DirectoryServer, one_of_each
from tests.login.login_pod import LoginPod

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=DEBIAN_SUITES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_slurm_itself_knows_no_user_of_the_directory(slurm: Cluster) -> None:
    with pytest.raises(ClusterError, match="Invalid --uid"):
        slurm.run_slurm("sbatch", "--uid=carol", "--wrap=true")


def test_a_batch_job_runs_as_its_user_and_writes_to_the_home(
    login: LoginPod, slurm: Cluster, carols_key: KeyPair
) -> None:
    submit = "sbatch --parsable --output=job.out --wrap='id -u; id -G; pwd; echo $USER'"
    done = login.client.by_key("carol", carols_key, submit)
    assert done.returncode == 0, done.stderr + login.pod.log("sackd")
    job = done.stdout.strip()
    shown = login.client.by_key(
        "carol", carols_key, f"squeue -h -j {job} -o '%u %U'; scontrol show job {job}"
    )
    assert "UserId=carol(5001) GroupId=carol(5001)" in shown.stdout, shown
    output = login.pod.volume("shared-home") / "carol/job.out"
    eventually(lambda: output.exists() and "carol" in output.read_text().split(), "the job has run", 30)
    assert output.read_text().split() == ["5001", "5001", "6001", "/home/carol", "carol"]
    assert output.stat().st_uid == 5001


def test_srun_shows_the_output_of_its_tasks(login: LoginPod, carols_key: KeyPair) -> None:
    done = login.client.by_key("carol", carols_key, "srun -n2 id -u")
    assert done.stdout.split() == ["5001", "5001"], done.stderr


def test_a_user_cannot_cancel_the_job_of_another_user(
    login: LoginPod, directory: DirectoryServer, release: str, carols_key: KeyPair, tmp_path: Path
) -> None:
    key = key_pair(tmp_path, "oscar")
    oscar = one_of_each("oscar", 5100, release, key)
    directory.add(oscar)
    job = login.client.by_key("carol", carols_key, "sbatch --parsable --wrap='sleep 600'").stdout.strip()
    refused = login.client.by_key(oscar.name, key, f"scancel {job}")
    assert "Access/permission denied" in refused.stderr
    assert login.client.by_key("carol", carols_key, f"scancel {job}").returncode == 0


def test_a_user_of_the_login_pod_is_no_operator_of_slurm(login: LoginPod, carols_key: KeyPair) -> None:
    done = login.client.by_key("carol", carols_key, "scontrol update nodename=ALL state=drain reason=x")
    assert "Invalid user id" in done.stderr
