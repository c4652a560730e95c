"""Tests of the native jobs of a Node, and of Slurm's limits of these jobs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from node_agent.enforcement.constraints import Counted
from node_agent.enforcement.native_jobs import NativeJobs, Scope, is_awake, missing, scopes
from node_agent.enforcement.others import Native
from node_agent.kernel import bpf
from node_agent.kernel.assembler import Assembler
from node_agent.pods.cgroups import CPUS, CPUS_IN_FORCE, EVENTS, MEMORY, PodCgroups
from node_agent.pods.claims import Claim
from tests.eventually import eventually, eventually_not
from tests.node_agent.node import A, B

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.node_agent.node import Node

SCOPE = "system.slice/n1_slurmstepd.scope"
OF_JOB = {A: Claim(A, "ml/a", memory_mb=64, job=7)}
OTHERS = {A: Claim(A, "kube-system/slurmd"), B: Claim(B, "ml/b", adopted=True)}


class Jobs(NativeJobs):
    """Checks the native jobs of a Node. The clock advances 10 s before each check."""

    def __init__(self, folder: Path) -> None:
        (folder / "kubepods").mkdir(exist_ok=True)
        self._now = 0.0
        super().__init__(PodCgroups(folder), lambda: self._now)

    def seen(self, claims: Mapping[str, Claim] | None = None) -> str:
        self._now += 10
        return self.look(claims or {}, [])


def make_job(
    folder: Path, job: str = "job_33", cpus: str = "2", memory: str = "104857600", *, runs: bool = True
) -> Path:
    """Makes a job's cgroup as plain files, because this kernel does not have the controllers."""
    (folder / SCOPE / "system").mkdir(parents=True, exist_ok=True)
    place = folder / SCOPE / job
    (place / "step_batch/user").mkdir(parents=True, exist_ok=True)
    for part in (place, place / "step_batch/user"):
        (part / EVENTS).write_text(f"populated {runs:d}\nfrozen 0\n")
    for file in (CPUS, CPUS_IN_FORCE):
        (place / file).write_text(f"{cpus}\n")
    (place / MEMORY).write_text(f"{memory}\n")
    return place


def make_pod(folder: Path, uid: str, parent: str = "kubepods/burstable") -> Path:
    place = folder / parent / f"pod{uid}"
    (place / "c").mkdir(parents=True)
    (place / EVENTS).write_text("populated 1\n")
    return place


@pytest.fixture
def native(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


@pytest.mark.parametrize("job", ["job_33", "sEHSM7YS0FD500"])
def test_jobs_are_found_by_the_cgroup_names_of_both_releases(tmp_path: Path, job: str) -> None:
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


@pytest.mark.parametrize(("uid", "claims"), [(A, OF_JOB), (B, OF_JOB), (B, OTHERS)])
def test_only_pods_of_no_job_have_native_jobs(
    tmp_path: Path, uid: str, claims: dict[str, Claim]
) -> None:
    """A Pod of a job, an unknown Pod and an adopted Pod have no native jobs."""
    make_job(make_pod(tmp_path, uid))
    for parent in ("kubepods", "kubepods.slice"):
        (make_pod(tmp_path, uid, parent) / "x_slurmstepd.scope/job_1/step_0").mkdir(parents=True)
    assert list(scopes(PodCgroups(tmp_path), claims)) == []


def test_lasting_problem_of_a_job_is_reported(tmp_path: Path, native: Jobs) -> None:
    job = make_job(tmp_path, cpus="")
    assert native.seen() == ""
    words = "ConstrainCores=yes (cgroup.conf) is not in force for job_33: its cpuset.cpus is empty"
    assert native.seen() == words
    (job / CPUS).write_text("2\n")
    assert native.seen() == ""
    (job / CPUS).write_text("\n")
    assert native.seen() == ""


def test_starting_jobs_are_no_problem(tmp_path: Path, native: Jobs) -> None:
    for number in range(3):
        job = make_job(tmp_path, f"job_{number}", cpus="")
        assert native.seen() == ""
        (job / CPUS).write_text("2\n")


def test_memory_is_checked_if_slurm_grants_memory(tmp_path: Path, native: Jobs) -> None:
    make_job(tmp_path, memory="max")
    assert [native.seen(OTHERS), native.seen(OTHERS), native.seen(OF_JOB)] == ["", "", ""]
    assert "ConstrainRAMSpace=yes (cgroup.conf) is not in force for job_33" in native.seen(OF_JOB)
    assert native.seen({A: Claim(A, "ml/a", requested_mb=64, job=7)}) == ""


def test_cgroup_without_a_step_is_no_job(tmp_path: Path, native: Jobs) -> None:
    (tmp_path / SCOPE / "system").mkdir(parents=True)  # the cgroup of slurmstepd
    (tmp_path / SCOPE / "job_7").mkdir()  # the cgroup of a placeholder
    assert [native.seen(OF_JOB), native.seen(OF_JOB)] == ["", ""]


def test_cgroup_of_an_ended_job_is_no_job(tmp_path: Path, native: Jobs) -> None:
    """The cgroup of an ended job stays if Slurm cannot remove the cgroup, or if slurmstepd was
    killed."""
    pod = make_pod(tmp_path, A)
    make_job(pod / "c", "job_33", cpus="", runs=False)
    make_job(tmp_path, "job_34", cpus="", runs=False)
    assert native.jobs_in(A) == []
    assert [native.seen(OTHERS), native.seen(OTHERS)] == ["", ""]
    make_job(tmp_path, "job_35", cpus="4-5", runs=False)
    native.seen(OTHERS)
    assert native.known == Native(frozenset(), frozenset({A}))
    make_job(pod / "c", "job_36")
    assert native.jobs_in(A) == ["job_36"]


@pytest.mark.real
@pytest.mark.parametrize("process", ["step_extern/slurm", "step_0/user/task_0", "step_batch/slurm"])
def test_job_runs_while_slurmstepd_or_a_process_of_the_job_runs(node: Node, process: str) -> None:
    tree = node.tree
    scope = f"kubepods/pod{A}/c/{SCOPE}"
    tree.make(f"{scope}/system", f"{scope}/job_33/step_extern/user", f"{scope}/job_33/{process}")
    native = NativeJobs(PodCgroups(tree.root))
    with node.process(f"{scope}/system"):  # `slurmstepd infinity` is no job
        assert native.jobs_in(A) == []
    with node.process(f"{scope}/job_33/{process}"):
        assert native.jobs_in(A) == ["job_33"]
    assert native.jobs_in(A) == []


def test_look_finds_the_cores_of_jobs_and_slurmds_pods(tmp_path: Path, native: Jobs) -> None:
    before = native.known
    make_job(tmp_path, cpus="2-3,8")
    make_job(tmp_path, "job_34", cpus="")
    make_job(make_pod(tmp_path, A), "job_35", cpus="5")
    native.seen(OTHERS)
    after = native.known
    (tmp_path / SCOPE / "job_33" / CPUS).unlink()
    native.seen(OTHERS)
    pods = frozenset({A})
    expected = [None, Native(frozenset({2, 3, 5, 8}), pods), Native(frozenset({5}), pods)]
    assert [before, after, native.known] == expected


def test_job_computes_on_its_cores_in_force(tmp_path: Path, native: Jobs) -> None:
    job = make_job(tmp_path, cpus="2-3")
    make_job(tmp_path, "job_34", cpus="")  # job_34 is not limited to cores
    (tmp_path / SCOPE / "job_34" / CPUS_IN_FORCE).write_text("0-7\n")
    native.seen()
    assert native.cpus == {"job_33": {2, 3}, "job_34": frozenset()}
    (job / CPUS_IN_FORCE).write_text("3\n")  # slurmd's Pod lacks core 2
    native.seen()
    assert native.cpus["job_33"] == {3}


@pytest.mark.parametrize("events", ["populated 1\nfrozen 1\n", "populated 0\nfrozen 0\n", None])
def test_suspended_job_computes_on_no_core(tmp_path: Path, native: Jobs, events: str | None) -> None:
    step = make_job(tmp_path) / "step_batch/user" / EVENTS
    step.unlink() if events is None else step.write_text(events)
    native.seen()
    assert native.cpus == {"job_33": frozenset()}


@pytest.mark.real
def test_frozen_step_is_not_awake(node: Node) -> None:
    """slurmstepd freezes the cgroup `user` of a step."""
    tree, user = node.tree, f"{SCOPE}/job_33/step_0/user"
    tree.make(f"{user}/task_0")
    assert not is_awake(tree.root / user)
    with node.process(f"{user}/task_0"):
        assert is_awake(tree.root / user)
        (tree.root / user / "cgroup.freeze").write_text("1")
        eventually_not(lambda: is_awake(tree.root / user), "frozen")
        (tree.root / user / "cgroup.freeze").write_text("0")
        eventually(lambda: is_awake(tree.root / user), "awake again")


def test_job_of_a_pod_is_no_native_job(tmp_path: Path, native: Jobs) -> None:
    """On Slurm 24.11, the Pod's job is a batch job that sleeps, beside the Pod."""
    make_job(tmp_path)
    make_job(tmp_path, "job_34")
    native.seen({A: Claim(A, "ml/a", job=33), B: Claim(B, "ml/b", job=35, adopted=True)})
    assert [*native.cpus] == ["job_34"]


@pytest.mark.parametrize("devices", [False, True])
def test_removed_job_has_no_problem(tmp_path: Path, devices: bool) -> None:
    assert missing(tmp_path / "job_33", Counted(memory=True, devices=devices)) == {}


@pytest.mark.real
@pytest.mark.parametrize("at", ["", "/step_0/user"], ids=["job", "step"])
def test_device_program_above_the_jobs_cgroup_does_not_count(node: Node, at: str) -> None:
    """slurmd runs in a Pod, so the agent's guard is above the cgroups of slurmd's jobs. The guard does
    not show that Slurm constrains devices."""
    tree, counts = node.tree, Counted(memory=False, devices=True)
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
