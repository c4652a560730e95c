"""Tests of a lost volume `slurmctld-state`: the effects on native jobs, Pods, job ids and sacct."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.spec import DEFAULT_RELEASE
from tests.end_to_end.actors import Actors
from tests.eventually import eventually
from tests.slurm_chart.controller import Controller, Sidecar
from tests.slurm_chart.native_jobs import NativeJobs
from wellknown.names import JOB_ID

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

JOBS = 3


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller.up(DEFAULT_RELEASE, nodes=2, gate=True) as made:
        made.restart()
        yield made


def test_lost_state_ends_native_jobs_keeps_pods_and_restarts_job_ids(
    controller: Controller, tmp_path: Path
) -> None:
    actors, native = Actors(controller.cluster), NativeJobs(controller.cluster, 0)
    actors.create("pod")
    node = actors.bound("pod")
    before = actors.see("pod")
    assert before is not None
    old = [native.submit() for _ in range(JOBS)]
    eventually(lambda: native.queue() == dict.fromkeys(old, "RUNNING"), "they run")
    eventually(lambda: native.books() == {name: {"RUNNING"} for name in old}, "sacct has them")
    with Sidecar.beside(controller, tmp_path / "first") as sidecar:
        eventually(sidecar.told, "the sidecar has begun")
    with controller.away():
        controller.lose_state()
    with Sidecar.beside(controller, tmp_path / "second") as sidecar:
        eventually(lambda: any("wanted" in words for words in sidecar.applied()), "it begins anew", 60)
    controller.start()
    eventually(lambda: ended(native), "their slurmds end the native jobs", 60)
    assert native.queue() == {}
    eventually(lambda: (job := actors.job_of("pod")) and job.state == "RUNNING", "the Pod's job", 60)
    now, job = actors.see("pod"), actors.job_of("pod")
    assert now is not None
    assert job is not None
    assert now["metadata"]["uid"] == before["metadata"]["uid"]
    assert (job.id, job.node) == (int(before["metadata"]["annotations"][JOB_ID]), node)
    new = native.submit(1)
    assert native.submitted[new].id == "1"
    eventually(lambda: "COMPLETED" in native.books()[new], "sacct has the new one", 60)
    assert {frozenset(native.books()[name]) for name in old} == {frozenset({"RUNNING"})}
    eventually(lambda: are_ended(native, old), "sacctmgr ends the old ones", 60)
    actors.close()


def ended(native: NativeJobs) -> bool:
    """Returns True if no job has written a line for 3 seconds."""
    last = max(run.last for job in native.read() for run in job.runs)
    return time.time() - last > 3.0


def are_ended(native: NativeJobs, names: list[str]) -> bool:
    """Ends runaway jobs, and returns True if sacct shows the named jobs as completed. One call may not
    be enough: sacctmgr skips a runaway job if a recent job has the same id."""
    native.end_runaway_jobs()
    return {frozenset(native.books()[name]) for name in names} == {frozenset({"COMPLETED"})}
