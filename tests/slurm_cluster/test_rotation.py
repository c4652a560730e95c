"""Tests of the rotation of auth/slurm's key while Slurm runs jobs. No job is lost. Every command works
between the steps, even while slurmctld and slurmd have read different files."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from deploy.local.users import SLURM_UID
from slurm_cluster import jwks
from slurm_cluster.jwks import Key, Keys
from tests.eventually import eventually

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
    """Writes slurm.jwks for all daemons. Each daemon reads the file at its next start or
    reconfiguration."""
    write(cluster.directory / "slurm/etc/slurm.jwks", jwks.render(keys))


def write(file: Path, content: bytes) -> None:
    """Replaces a file with a new file, as the kubelet does. Daemons keep the old content in memory."""
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_bytes(content)
    os.chown(file, SLURM_UID, SLURM_UID)


def works(cluster: Cluster, job: str) -> None:
    """Checks that the earlier job still runs, and that a new job runs to its end."""
    state = cluster.run_slurm("squeue", "--noheader", f"--jobs={job}", "--format=%T").stdout
    assert state.strip() == "RUNNING"
    said = cluster.run_slurm("srun", "--mem=10", "echo", "well", user="alice").stdout
    assert said == "well\n"
    cluster.run_slurm("srun", f"--jobid={job}", "--overlap", "true", user="alice")


def reconfigure(cluster: Cluster) -> None:
    cluster.run_slurm("scontrol", "reconfigure")
    eventually(lambda: "is UP" in ping(cluster), within_s=20)


def ping(cluster: Cluster) -> str:
    try:
        return cluster.run_slurm("scontrol", "ping").stdout
    except ClusterError as error:
        return str(error)


def test_a_rotation_in_three_steps_loses_no_job(cluster: Cluster) -> None:
    script = "#!/bin/sh\nsleep 600\n"
    job = cluster.run_slurm(
        "sbatch", "--parsable", "--mem=10", user="alice", stdin=script
    ).stdout.strip()
    eventually(lambda: cluster.run_slurm("squeue", "--noheader", "--states=R").stdout, within_s=20)
    keys: Keys = (Key("first", (cluster.directory / "slurm/etc/slurm.key").read_bytes(), signs=True),)
    for _ in jwks.Stage:
        keys = jwks.rotated(keys, NEW)
        place(cluster, keys)
        cluster.restart("slurmctld")  # slurmd still has the keys of the step before
        works(cluster, job)
        reconfigure(cluster)
        works(cluster, job)
    assert keys == (Key("second", NEW.value, signs=True),)
    cluster.run_slurm("scancel", job)


@pytest.mark.parametrize("release", DEBIAN_SUITES)
def test_slurmdbd_accepts_tokens_of_the_old_key_until_a_restart(release: str, tmp_path: Path) -> None:
    """`keys rotate --jwt` and docs/reference/slurm-configuration.md describe this behaviour."""
    spec = ClusterSpec(nodes=1, kubernetes=False, extender=False, accounting=True, release=release)
    with Cluster.up(spec, tmp_path) as cluster:
        old = cluster.mint_token("slurm")
        assert taken(cluster, old) == {"slurm": True, "slurmdb": True}
        write(cluster.directory / "slurm/etc/jwt_hs256.key", b"n" * 64)
        reconfigure(cluster)
        cluster.run_slurm("sacctmgr", "-i", "reconfigure")  # slurmdbd keeps the old key until a restart
        eventually(lambda: not taken(cluster, old)["slurm"], within_s=20)
        new = cluster.mint_token("slurm")
        assert taken(cluster, old) == {"slurm": False, "slurmdb": True}
        assert taken(cluster, new) == {"slurm": True, "slurmdb": False}
        cluster.restart("slurmdbd")
        eventually(lambda: taken(cluster, new) == {"slurm": True, "slurmdb": True}, within_s=20)
        assert taken(cluster, old) == {"slurm": False, "slurmdb": False}


def taken(cluster: Cluster, token: str) -> dict[str, bool]:
    """Returns whether slurmctld and slurmdbd accept a token of SlurmUser. The keys are the names of the
    two daemons in slurmrestd's paths."""
    address = f"http://127.0.0.1:{cluster.ports['slurmrestd']}"
    said = {"X-SLURM-USER-TOKEN": token}
    asked = {"slurm": "nodes", "slurmdb": "users"}
    return {
        name: httpx.get(f"{address}/{name}/v0.0.42/{what}/", headers=said, timeout=30).is_success
        for name, what in asked.items()
    }


def test_a_key_replaced_in_one_step_is_refused_by_daemons_with_the_old_key(cluster: Cluster) -> None:
    """For this reason, a rotation has three steps."""
    place(cluster, (Key("second", NEW.value, signs=True),))
    cluster.restart("slurmctld")
    command = [str(cluster.directory / "bin/srun"), "--mem=10", "--immediate=5", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
