"""Tests of jobs while the database does not answer for a minute: jobs start and end without waiting for
the database.

While slurmdbd or the database does not answer, slurmctld keeps the records for slurmdbd in memory, and
sends the records later. On SIGTERM, slurmctld first saves the records on its volume (dbd.messages). On
SIGKILL, the records are lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import DEBIAN_SUITES, DEFAULT_RELEASE
from tests.eventually import eventually, eventually_not
from tests.slurm_chart.controller import Controller
from tests.slurm_chart.figures import record
from tests.slurm_chart.native_jobs import NativeJobs, Submitted, met_by

AWAY_S = 60.0
STANDS_STILL_S = 10.0
"""Longest allowed time in which no job starts. Nodes always have room, and slurmctld schedules each
second."""
TOLD_WITHIN_S = 120.0


@pytest.fixture
def controller(request: pytest.FixtureRequest) -> Iterator[Controller]:
    release = str(request.param)
    with Controller.up(release, nodes=2, kubernetes=False, extender=False) as made:
        made.restart()
        yield made


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize("controller", [DEFAULT_RELEASE], indirect=True)
def test_jobs_continue_if_slurmctld_is_killed_without_the_database(controller: Controller) -> None:
    record("database_away_and_killed", killed_meanwhile(controller))


@pytest.mark.install
@pytest.mark.timeout(300)
@pytest.mark.parametrize("controller", list(DEBIAN_SUITES), indirect=True)
@pytest.mark.parametrize("component", ["mariadbd", "slurmdbd"])
def test_sacct_has_all_jobs_after_the_database_is_back(controller: Controller, component: str) -> None:
    native = NativeJobs(controller.cluster, 0)
    with controller.kubelet(), native.coming_and_going():
        time.sleep(5)
        with away(controller.cluster, component):
            time.sleep(AWAY_S)
        time.sleep(5)
    assert native.longest_pause_s() < STANDS_STILL_S
    eventually_not(lambda: not_told(native), "sacct has all of it", TOLD_WITHIN_S)


@pytest.mark.install
@pytest.mark.timeout(300)
@pytest.mark.parametrize("controller", ["24.11"], indirect=True)
def test_jobs_continue_if_an_older_slurmctld_is_killed_without_the_database(
    controller: Controller,
) -> None:
    killed_meanwhile(controller)


def killed_meanwhile(controller: Controller) -> dict[str, int]:
    native = NativeJobs(controller.cluster, 0)
    with controller.kubelet():
        long = native.submit()
        eventually(lambda: "RUNNING" in native.books()[long], "sacct has it")
        with native.coming_and_going():
            time.sleep(5)
            with away(controller.cluster, "mariadbd"):
                time.sleep(AWAY_S / 3)
                controller.end_in_order()
                ordered = time.time()
                time.sleep(AWAY_S / 3)
                controller.kill()
                time.sleep(AWAY_S / 3)
            time.sleep(5)
        native.settle([long])
    assert native.longest_pause_s() < STANDS_STILL_S

    def told_wrong() -> list[str]:
        return [job.name for job in not_told(native) if not lies_between(job, ordered, controller)]

    eventually_not(told_wrong, "sacct has what ran after the kill", TOLD_WITHIN_S)
    assert "RUNNING" in native.books()[long]
    gone, books = not_told(native), native.books()
    native.end_runaway_jobs()
    unknown = [job.name for job in not_told(native)]
    assert not [name for name in unknown if books[name]], "runaway jobs are ended"
    return {
        "jobs": len(native.submitted),
        "jobs_without_end_in_sacct": len(gone) - len(unknown),
        "jobs_unknown_to_sacct": len(unknown),
    }


@contextmanager
def away(cluster: Cluster, component: str) -> Iterator[None]:
    """Stops a component while the block runs, and then starts the component. Also starts slurmdbd if
    slurmdbd has ended in the block, as the Deployment would do."""
    cluster.stop(component, within_s=60)
    try:
        yield
    finally:
        cluster.start(component, wait=False)
        if not cluster.is_running("slurmdbd"):
            cluster.start("slurmdbd", wait=False)


def not_told(native: NativeJobs) -> list[Submitted]:
    """Returns the jobs that have ended, but have no record of the end in sacct."""
    books = native.books()
    over = [job for job in native.read() if any(run.ended for run in job.runs)]
    return [job for job in over if "COMPLETED" not in books[job.name]]


def lies_between(job: Submitted, ordered: float, controller: Controller) -> bool:
    """Returns True if slurmctld's record of the job's start or end may be lost. This is so if a kill
    came before slurmctld saved the event, or if slurmctld had the record only in memory: after the
    orderly end (`ordered`) and before the kill."""
    killed = controller.killed_at
    times = [at for run in job.runs for at in (run.first, run.last)]
    return met_by(killed, job) or any(ordered - 1.0 <= at <= killed[-1] for at in times)
