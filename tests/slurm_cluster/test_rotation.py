"""auth/slurm's key is rotated under a Slurm that runs jobs: none is lost, and every command works
between the steps, also while slurmctld and slurmd have read different files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from deploy.local.users import SLURM_UID
from slurm_cluster import jwks
from slurm_cluster.jwks import Key, Keys
from tests.local_cluster.test_cluster import wait_until

pytestmark = pytest.mark.real

NEW = Key("second", b"n" * 64)


@pytest.fixture(params=list(DEBIAN_SUITES))
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    spec = ClusterSpec(nodes=1, kubernetes=False, extender=False, release=request.param)
    with Cluster.up(spec, tmp_path_factory.mktemp("slurm")) as running:
        yield running


def place(cluster: Cluster, keys: Keys) -> None:
    """slurm.jwks for all daemons, which read it at their next start or reconfiguration."""
    file = cluster.directory / "slurm/etc/slurm.jwks"
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_bytes(jwks.render(keys))
    os.chown(file, SLURM_UID, SLURM_UID)


def works(cluster: Cluster, job: str) -> None:
    """The job of before runs, and a new one runs to its end."""
    state = cluster.run_slurm("squeue", "--noheader", f"--jobs={job}", "--format=%T").stdout
    assert state.strip() == "RUNNING"
    said = cluster.run_slurm("srun", "--mem=10", "echo", "well", user="alice").stdout
    assert said == "well\n"
    cluster.run_slurm("srun", f"--jobid={job}", "--overlap", "true", user="alice")


def reconfigure(cluster: Cluster) -> None:
    cluster.run_slurm("scontrol", "reconfigure")
    wait_until(lambda: "is UP" in ping(cluster))


def ping(cluster: Cluster) -> str:
    try:
        return cluster.run_slurm("scontrol", "ping").stdout
    except ClusterError as error:
        return str(error)


def test_three_steps_lose_no_job(cluster: Cluster) -> None:
    script = "#!/bin/sh\nsleep 600\n"
    job = cluster.run_slurm(
        "sbatch", "--parsable", "--mem=10", user="alice", stdin=script
    ).stdout.strip()
    wait_until(lambda: cluster.run_slurm("squeue", "--noheader", "--states=R").stdout)
    keys: Keys = (Key("first", (cluster.directory / "slurm/etc/slurm.key").read_bytes(), signs=True),)
    for _ in jwks.Stage:
        keys = jwks.rotated(keys, NEW)
        place(cluster, keys)
        cluster.restart("slurmctld")  # slurmd has what it read before
        works(cluster, job)
        reconfigure(cluster)
        works(cluster, job)
    assert keys == (Key("second", NEW.value, signs=True),)
    cluster.run_slurm("scancel", job)


def test_a_key_that_is_replaced_at_once_is_refused_by_those_who_lag(cluster: Cluster) -> None:
    """Why a rotation has three steps."""
    place(cluster, (Key("second", NEW.value, signs=True),))
    cluster.restart("slurmctld")
    command = [str(cluster.directory / "bin/srun"), "--mem=10", "--immediate=5", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
