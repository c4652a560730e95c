"""Tests of a trial (a temporary slurmctld tries a configuration) beside a Slurm with slurmdbd. The trial
checks the QOS and accounts in slurm.conf, and sends nothing to slurmdbd."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from slurm_cluster.configuration import folders
from slurm_cluster.configuration.configurer import Configurer, Places
from slurm_cluster.configuration.controller import Controller
from slurm_cluster.configuration.folders import File, Kept
from tests.eventually import eventually
from tests.slurm_programs import on_path, put_slurmctld, tree_of

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=list(DEBIAN_SUITES))
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    spec = ClusterSpec(nodes=1, kubernetes=False, extender=False, accounting=True, release=request.param)
    with Cluster.up(spec, tmp_path_factory.mktemp("slurm")) as running:
        programs = tmp_path_factory.mktemp("programs")
        put_slurmctld(programs, tree_of(request.param), running.directory / "slurm/etc")
        with on_path(programs, running.directory / "bin"):
            yield running


def problems(cluster: Cluster, tmp_path: Path, before: str, after: str) -> list[str]:
    """Returns the problems that a trial finds if `after` replaces `before` in the running slurm.conf."""
    running = cluster.directory / "slurm/etc"
    conf = (running / "slurm.conf").read_text().replace("localhost(127", f"{socket.gethostname()}(127")
    assert before in conf
    files = {"cgroup.conf": File((running / "cgroup.conf").read_bytes())}
    Kept(tmp_path / "kept").keep({**files, "slurm.conf": File(conf.encode())})
    changed = File(conf.replace(before, after, 1).encode())
    folders.write(tmp_path / "wanted", {**files, "slurm.conf": changed})
    state = cluster.directory / "slurm/var/state"
    places = Places(tmp_path / "wanted", running, tmp_path / "kept", (), state)
    return Configurer(places, Controller(1.0)).plan()[1]


def started(cluster: Cluster) -> str:
    shown = cluster.run_slurm("scontrol", "show", "config").stdout
    return next(line for line in shown.splitlines() if line.startswith("BOOT_TIME"))


def reconfigure(cluster: Cluster) -> None:
    before = started(cluster)
    eventually(
        lambda: cluster.run_slurm("scontrol", "reconfigure") and started(cluster) != before, within_s=20
    )


@pytest.fixture(autouse=True)
def state_is_saved(cluster: Cluster) -> None:
    """Reconfigures slurmctld, because slurmctld then saves the QOS and accounts that slurmdbd has sent.
    Without a reconfiguration, slurmctld saves them only every 5 minutes."""
    reconfigure(cluster)


def test_a_valid_configuration_has_no_problems(cluster: Cluster, tmp_path: Path) -> None:
    assert problems(cluster, tmp_path, "KillWait=40", "KillWait=41") == []


def test_an_unknown_qos_is_refused_until_it_exists(cluster: Cluster, tmp_path: Path) -> None:
    change = ("Default=YES", "Default=YES QOS=limits AllowQos=normal,limits")
    assert any("limits" in words for words in problems(cluster, tmp_path, *change))
    cluster.run_slurm("sacctmgr", "-i", "add", "qos", "limits")
    reconfigure(cluster)
    assert problems(cluster, tmp_path, *change) == []
    cluster.run_slurm("sacctmgr", "-i", "delete", "qos", "limits")


def test_a_trial_adds_no_tres_to_slurmdbd(cluster: Cluster, tmp_path: Path) -> None:
    change = ("AccountingStorageTRES=gres/gpu", "AccountingStorageTRES=gres/gpu,gres/tape")
    assert problems(cluster, tmp_path, *change) == []
    assert "tape" not in cluster.run_slurm("sacctmgr", "-nP", "show", "tres").stdout


def test_a_cluster_name_that_differs_from_the_state_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    found = problems(cluster, tmp_path, "ClusterName=local", "ClusterName=other")
    assert any("CLUSTER NAME MISMATCH" in words for words in found)


def test_a_trial_does_not_register_with_slurmdbd(cluster: Cluster, tmp_path: Path) -> None:
    def known() -> str:
        asked = ("show", "cluster", "format=Cluster,ControlHost,ControlPort")
        return cluster.run_slurm("sacctmgr", "-nP", *asked).stdout

    eventually(lambda: str(cluster.ports["slurmctld"]) in known(), within_s=20)
    before = known()
    assert problems(cluster, tmp_path, "KillWait=40", "KillWait=41") == []
    assert known() == before
