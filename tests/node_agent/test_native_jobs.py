"""The native jobs of a Node, and whether Slurm holds them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from node_agent.enforcement.constraints import Counted
from node_agent.enforcement.native_jobs import NativeJobs, Scope, missing, scopes
from node_agent.enforcement.others import Native
from node_agent.kernel import bpf
from node_agent.kernel.assembler import Assembler
from node_agent.pods.cgroups import CPUS, EVENTS, MEMORY, PodCgroups
from node_agent.pods.claims import Claim
from tests.node_agent.node import A, B

if TYPE_CHECKING:
    from pathlib import Path

    from tests.node_agent.node import Node

SCOPE = "system.slice/n1_slurmstepd.scope"
OF_JOB = {A: Claim(A, "ml/a", memory_mb=64, of_job=True)}
OTHERS = {A: Claim(A, "kube-system/slurmd"), B: Claim(B, "ml/b", adopted=True)}


class Clock:
    now = 0.0


def make_job(
    folder: Path, job: str = "job_33", cpus: str = "2", memory: str = "104857600", *, runs: bool = True
) -> Path:
    """A job's cgroup as plain files: here is no kernel that has the controllers."""
    (folder / SCOPE / "system").mkdir(parents=True, exist_ok=True)
    place = folder / SCOPE / job
    (place / "step_batch/user").mkdir(parents=True, exist_ok=True)
    (place / EVENTS).write_text(f"populated {runs:d}\nfrozen 0\n")
    (place / CPUS).write_text(f"{cpus}\n")
    (place / MEMORY).write_text(f"{memory}\n")
    return place


def make_pod(folder: Path, uid: str, parent: str = "kubepods/burstable") -> Path:
    place = folder / parent / f"pod{uid}"
    (place / "c").mkdir(parents=True)
    (place / EVENTS).write_text("populated 1\n")
    return place


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def native(tmp_path: Path, clock: Clock) -> NativeJobs:
    (tmp_path / "kubepods").mkdir()
    return NativeJobs(PodCgroups(tmp_path), lambda: clock.now)


@pytest.mark.parametrize("job", ["job_33", "sEHSM7YS0FD500"])
def test_jobs_are_found_by_either_releases_name(tmp_path: Path, job: str) -> None:
    (tmp_path / "kubepods").mkdir()
    place = make_job(tmp_path, job)
    (found,) = scopes(PodCgroups(tmp_path), {})
    assert found == Scope(tmp_path / SCOPE)
    assert list(found.jobs()) == [place]


def test_slurmd_may_run_in_a_pod_of_no_job(tmp_path: Path) -> None:
    place = make_pod(tmp_path, A)
    make_job(place)
    make_job(place / "c", "job_34")
    found = set(scopes(PodCgroups(tmp_path), OTHERS))
    assert found == {Scope(place / SCOPE, A), Scope(place / "c" / SCOPE, A)}


@pytest.mark.parametrize("uid", [A, B])
def test_a_pod_of_a_job_or_an_unknown_one_cannot_pretend_to_have_jobs(tmp_path: Path, uid: str) -> None:
    make_job(make_pod(tmp_path, uid))
    for parent in ("kubepods", "kubepods.slice"):
        (make_pod(tmp_path, uid, parent) / "x_slurmstepd.scope/job_1/step_0").mkdir(parents=True)
    assert list(scopes(PodCgroups(tmp_path), OF_JOB)) == []


def test_an_adopted_pod_cannot_either(tmp_path: Path) -> None:
    make_job(make_pod(tmp_path, B))
    assert list(scopes(PodCgroups(tmp_path), OTHERS)) == []


def test_a_job_that_is_not_held_is_told_of_until_it_is(
    tmp_path: Path, native: NativeJobs, clock: Clock
) -> None:
    job = make_job(tmp_path, cpus="")
    assert native.look({}, []) == ""
    clock.now += 10
    words = "ConstrainCores=yes (cgroup.conf) is not in force for job_33: its cpuset.cpus is empty"
    assert native.look({}, []) == words
    (job / CPUS).write_text("2\n")
    assert native.look({}, []) == ""
    (job / CPUS).write_text("\n")  # for long again? not yet
    assert native.look({}, []) == ""


def test_a_job_that_has_just_begun_is_not_told_of(
    tmp_path: Path, native: NativeJobs, clock: Clock
) -> None:
    for number in range(3):
        job = make_job(tmp_path, f"job_{number}", cpus="")
        assert native.look({}, []) == ""
        (job / CPUS).write_text("2\n")
        clock.now += 10


def test_memory_counts_where_slurm_has_granted_some(
    tmp_path: Path, native: NativeJobs, clock: Clock
) -> None:
    make_job(tmp_path, memory="max")
    for claims in (OTHERS, OF_JOB):
        native.look(claims, [])
        clock.now += 10
    assert native.look(OTHERS, []) == ""
    native.look(OF_JOB, [])
    clock.now += 10
    assert "ConstrainRAMSpace=yes (cgroup.conf) is not in force for job_33" in native.look(OF_JOB, [])
    assert native.look({A: Claim(A, "ml/a", requested_mb=64, of_job=True)}, []) == ""


def test_a_placeholder_without_a_step_and_slurmstepds_own_cgroup_are_no_jobs(
    tmp_path: Path, native: NativeJobs, clock: Clock
) -> None:
    (tmp_path / SCOPE / "system").mkdir(parents=True)
    (tmp_path / SCOPE / "job_7").mkdir()
    native.look(OF_JOB, [])
    clock.now += 10
    assert native.look(OF_JOB, []) == ""


def test_what_an_ended_job_has_left_is_no_job(tmp_path: Path, native: NativeJobs, clock: Clock) -> None:
    """Slurm leaves it where it is refused to remove it, or slurmstepd was killed."""
    pod = make_pod(tmp_path, A)
    make_job(pod / "c", "job_33", cpus="", runs=False)
    make_job(tmp_path, "job_34", cpus="", runs=False)
    assert native.jobs_in(A) == []
    for _ in range(2):
        assert native.look(OTHERS, []) == ""
        clock.now += 10
    make_job(tmp_path, "job_35", cpus="4-5", runs=False)
    native.look(OTHERS, [])
    assert native.known == Native(frozenset(), frozenset({A}))
    make_job(pod / "c", "job_36")
    assert native.jobs_in(A) == ["job_36"]


@pytest.mark.real
@pytest.mark.parametrize("process", ["step_extern/slurm", "step_0/user/task_0", "step_batch/slurm"])
def test_a_job_runs_while_slurmstepd_or_a_process_of_it_does(one_driver: Node, process: str) -> None:
    tree = one_driver.tree
    scope = f"kubepods/pod{A}/c/{SCOPE}"
    tree.make(f"{scope}/system", f"{scope}/job_33/step_extern/user", f"{scope}/job_33/{process}")
    native = NativeJobs(PodCgroups(tree.root))
    with one_driver.process(f"{scope}/system"):  # slurmstepd infinity
        assert native.jobs_in(A) == []
    with one_driver.process(f"{scope}/job_33/{process}"):
        assert native.jobs_in(A) == ["job_33"]
    assert native.jobs_in(A) == []


def test_what_jobs_have_and_where_slurmd_runs_is_known_after_a_look(
    tmp_path: Path, native: NativeJobs
) -> None:
    before = native.known
    make_job(tmp_path, cpus="2-3,8")
    make_job(tmp_path, "job_34", cpus="")
    make_job(make_pod(tmp_path, A), "job_35", cpus="5")
    native.look(OTHERS, [])
    after = native.known
    (tmp_path / SCOPE / "job_33" / CPUS).unlink()
    native.look(OTHERS, [])
    pods = frozenset({A})
    expected = [None, Native(frozenset({2, 3, 5, 8}), pods), Native(frozenset({5}), pods)]
    assert [before, after, native.known] == expected


def test_a_job_that_is_gone_misses_nothing(tmp_path: Path) -> None:
    assert missing(tmp_path / "job_33", Counted(memory=True, devices=False)) == {}
    assert missing(tmp_path / "job_33", Counted(memory=True, devices=True)) == {}


@pytest.mark.real
@pytest.mark.parametrize("at", ["", "/step_0/user"], ids=["job", "step"])
def test_the_device_program_is_slurms_and_not_one_above(one_driver: Node, at: str) -> None:
    """slurmd runs in a Pod here: the agent's guard is above its jobs."""
    tree, counts = one_driver.tree, Counted(memory=False, devices=True)
    job = f"kubepods/pod{A}/{SCOPE}/job_33"
    tree.make(f"{job}/step_0/user/task_0", f"{job}/step_0/slurm")
    code = Assembler()
    code.leave(1)
    program = bpf.load("any", code.assembled())
    try:
        bpf.attach(program, tree.root / "kubepods")
        assert "ConstrainDevices" in missing(tree.root / job, counts)
        bpf.attach(program, tree.root / f"{job}{at}")
        assert "ConstrainDevices" not in missing(tree.root / job, counts)
    finally:
        os.close(program)
