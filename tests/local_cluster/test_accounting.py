"""Tests of local clusters with slurmdbd and MariaDB: the declared accounts and limits take effect, and
jobs are recorded."""

import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.accounting import Account, Limits, Qos, Reservation, User, declare, reserved
from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from tests.eventually import eventually

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=list(DEBIAN_SUITES))
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster with one node. alice may use the account ml."""
    spec = ClusterSpec(nodes=1, kubernetes=False, extender=False, accounting=True, release=request.param)
    with Cluster.up(spec, tmp_path_factory.mktemp("accounting")) as running:
        declare(running, Account("ml"), User("alice", accounts=("ml",)))
        yield running


@pytest.fixture(autouse=True)
def no_jobs_left(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.run_slurm("scancel", "--user=alice")
    eventually(lambda: not cluster.run_slurm("squeue", "--noheader").stdout, within_s=20)


def sbatch(cluster: Cluster, *options: str, user: str = "alice", runs: str = "sleep 60") -> str:
    """Submits a job of a user, and returns the job's id."""
    script = f"#!/bin/sh\n{runs}\n"
    return cluster.run_slurm("sbatch", "--parsable", *options, user=user, stdin=script).stdout.strip()


def sacct(cluster: Cluster, job_id: str, *fields: str) -> list[str]:
    shown = cluster.run_slurm("sacct", "-nPX", f"--jobs={job_id}", f"--format={','.join(fields)}")
    return shown.stdout.strip().split("|")


def reason(cluster: Cluster, job_id: str) -> str:
    return cluster.run_slurm("squeue", "--noheader", f"--jobs={job_id}", "--format=%r").stdout.strip()


def test_accounting_has_the_account_and_comment_of_a_job(cluster: Cluster) -> None:
    job_id = sbatch(cluster, "--account=ml", "--comment=for the paper", runs="true")
    eventually(lambda: sacct(cluster, job_id, "state") == ["COMPLETED"], within_s=20)
    entry = sacct(cluster, job_id, "user", "group", "account", "qos", "comment")
    assert entry == ["alice", "alice", "ml", "normal", "for the paper"]


def test_user_without_an_account_is_refused_with_the_reason(cluster: Cluster) -> None:
    for options in ((), ("--account=ml",)):
        with pytest.raises(ClusterError, match="Invalid account"):
            sbatch(cluster, *options, user="bob")


def test_changed_declaration_applies_at_once(cluster: Cluster) -> None:
    declare(
        cluster, Qos("few", limits=Limits(max_jobs=1)), User("alice", ("ml",), qos=("normal", "few"))
    )
    first, second = (sbatch(cluster, "--qos=few") for _ in range(2))
    eventually(lambda: reason(cluster, second) == "QOSMaxJobsPerUserLimit", within_s=20)
    assert reason(cluster, first) == "None"

    declare(cluster, Qos("few", limits=Limits(max_submit_jobs=2)))
    eventually(lambda: reason(cluster, second) == "None", within_s=20)
    with pytest.raises(ClusterError, match="QOSMaxSubmitJobPerUserLimit"):
        sbatch(cluster, "--qos=few")

    declare(cluster, User("alice", accounts=("ml",)))
    with pytest.raises(ClusterError, match="Invalid qos"):
        sbatch(cluster, "--qos=few")


def test_a_reservation_is_for_its_users_until_the_block_ends(cluster: Cluster) -> None:
    with reserved(cluster, Reservation("bobs", nodes=("node-1",), users=("root",))):
        with pytest.raises(ClusterError, match="Access denied to requested reservation"):
            sbatch(cluster, "--reservation=bobs")
        waits = sbatch(cluster)
        eventually(lambda: reason(cluster, waits).startswith("ReqNodeNotAvail"), within_s=20)
    eventually(lambda: reason(cluster, waits) == "None", within_s=20)


def test_everything_listens_on_loopback_only(cluster: Cluster) -> None:
    listening = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=True).stdout
    addresses = [line.split()[3].rpartition(":") for line in listening.splitlines()]
    ports = {str(port) for port in cluster.ports.values()}
    assert {host for host, _, port in addresses if port in ports} == {"127.0.0.1"}
    assert {port for _, _, port in addresses if port in ports} == ports


def test_database_denies_access_without_its_password(cluster: Cluster) -> None:
    """Otherwise a user with jobs on the machine could grant rights in the database."""
    assert (cluster.directory / "slurm/etc/slurmdbd.conf").stat().st_mode & 0o077 == 0
    for user in ("root", "slurm"):
        assert "Access denied" in knock(cluster.directory / "db/mysqld.sock", user)


def knock(database: Path, user: str) -> str:
    """Tries to log in to MariaDB as a user, without a password. Returns MariaDB's reply."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(database))
        link.recv(4096)
        capabilities = struct.pack("<IIB23x", 0x0008_8200, 1 << 24, 33)  # 4.1, plugin, secure
        answer = capabilities + user.encode() + b"\0\0mysql_native_password\0"
        link.sendall(struct.pack("<I", len(answer) | 1 << 24) + answer)
        return link.recv(4096).decode(errors="replace")


def test_jobs_run_without_the_database_and_are_recorded_later(cluster: Cluster) -> None:
    cluster.kill("slurmdbd")
    cluster.kill("mariadbd")
    job_id = sbatch(cluster, "--account=ml", runs="true")
    with pytest.raises(ClusterError, match="Invalid account"):
        sbatch(cluster, user="bob")
    cluster.start("mariadbd")
    cluster.start("slurmdbd")
    eventually(lambda: sacct(cluster, job_id, "account", "state") == ["ml", "COMPLETED"], within_s=60)
