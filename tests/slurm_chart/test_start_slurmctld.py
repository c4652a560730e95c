"""Tests of deploy/charts/slurm/files/start-slurmctld. After a kill at a bad moment, this script lets
slurmctld start again with its jobs, without help from a person."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from deploy.local.errors import ClusterError
from deploy.local.layout import Layout
from deploy.local.spec import DEBIAN_SUITES
from tests.eventually import eventually
from tests.slurm_chart.controller import Controller

pytestmark = pytest.mark.real

HOLDS_ON = {"26.05": "to recover"}
"""The message with which a release refuses to start if a state file is missing. Releases that are not
listed start without the file."""

WRITTEN = "written-down"


@pytest.fixture(params=list(DEBIAN_SUITES))
def controller(request: pytest.FixtureRequest) -> Iterator[Controller]:
    release = str(request.param)
    with Controller.up(release, nodes=1, kubernetes=False, extender=False) as made:
        yield made


def ends_or_starts(controller: Controller) -> None:
    """Starts slurmctld without the script, and checks that a release in HOLDS_ON does not start."""
    cluster = controller.cluster
    alone = ["chroot", str(Layout(cluster.directory).root), "/usr/sbin/slurmctld", "-D"]
    words = HOLDS_ON.get(cluster.spec.release)
    if words:
        with pytest.raises(ClusterError, match=words):
            cluster.start("slurmctld", argv=alone)


def test_slurmctld_restarts_after_a_kill_in_the_first_minutes_of_a_cluster(
    controller: Controller,
) -> None:
    """The kill comes before slurmctld has written all state files: slurmctld writes some files only
    every 5 minutes."""
    job = running(controller, "first")
    controller.cluster.kill("slurmctld")
    ends_or_starts(controller)
    controller.start()
    assert state_of(controller, job) == "RUNNING"


def test_slurmctld_restarts_after_a_kill_between_two_renames_of_a_file(controller: Controller) -> None:
    controller.restart()
    job = running(controller, "between")
    controller.cluster.kill("slurmctld")
    for old in list(controller.state.glob("*.old")):
        path = old.with_suffix("")
        saved = path.with_name(f"{path.name}.new")
        if saved.exists() and not path.exists():  # the kill came between the two renames
            continue
        shutil.copy(path, saved)
        shutil.chown(saved, path.stat().st_uid, path.stat().st_gid)
        path.rename(old)
    assert not (controller.state / "job_state").exists()
    ends_or_starts(controller)
    controller.start()
    assert state_of(controller, job) == "RUNNING"
    assert not list(controller.state.glob("*.new"))


def running(controller: Controller, name: str) -> str:
    """Submits a job, and returns its id after slurmctld has saved that the job runs."""
    submit = ("--parsable", f"--job-name={name}", "--mem=10", "--output=/dev/null", "--wrap=sleep 300")
    job = controller.cluster.run_slurm("sbatch", *submit).stdout.strip()
    eventually(lambda: state_of(controller, job) == "RUNNING", "it runs")
    written = controller.state / "job_state"
    controller.cluster.run_slurm("scontrol", "update", f"JobId={job}", f"Comment={WRITTEN}")
    eventually(lambda: written.exists() and WRITTEN.encode() in written.read_bytes(), "it is written")
    return job


def state_of(controller: Controller, job: str) -> str:
    asked = ("--noheader", f"--jobs={job}", "--format=%T")
    return controller.cluster.run_slurm("squeue", *asked).stdout.strip()
