"""Tests of Pods of no job, and of the cores that jobs leave to these Pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from node_agent.app import keeper_of
from node_agent.enforcement.limits import listed
from node_agent.enforcement.others import CpuSplit, Native, of_no_job
from node_agent.enforcement.others_off import OthersOff
from node_agent.machine.cpus import Cpus
from node_agent.pods.cgroups import CPUS, PodCgroup, PodCgroups
from node_agent.pods.claims import Claim
from node_agent.settings import Settings
from tests.node_agent.node import A, B

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.node_agent.node import Node

CORES = Cpus(((0, 4), (1, 5), (2, 6), (3, 7)))
STATIC, UNKNOWN = "c70ec165edcd57eafdfe2a7ab4bdffe9", "2e6b6a0e-0d52-4f8e-8a39-9b1a2c3d4e5f"
OTHER = Claim(A, "kube-system/p")
JOB = Claim(B, "ml/b", cores=(1,), job=7)
BOTH = {A: OTHER, B: JOB}
NOBODY = Native()


def test_pod_of_no_job_is_a_static_pod_or_known_to_have_no_job() -> None:
    assert [of_no_job(uid, BOTH) for uid in (A, B, UNKNOWN, STATIC)] == [True, False, False, True]
    assert not of_no_job(A, {A: OTHER._replace(adopted=True)})
    assert not of_no_job(B, {B: Claim(B, "ml/b", problem="cannot be read", job=7)})


def test_adopted_pod_gets_all_cores_back(tmp_path: Path) -> None:
    """Before the adoption, the Pod had no job, so the agent kept the Pod off the cores of jobs."""
    (tmp_path / CPUS).write_text("")
    cgroup = PodCgroup(A, 7, populated=True, place=tmp_path)
    for claim, expected in ((OTHER, "0,2-4,6-7"), (OTHER._replace(adopted=True), "0-7")):
        assert OthersOff().keep({A: claim, B: JOB}, [cgroup], CORES, NOBODY) == ""
        assert (tmp_path / CPUS).read_text() == expected


def test_only_cores_without_any_job_are_left_to_other_pods() -> None:
    assert CpuSplit.of(CORES, [OTHER, JOB], {6}).left == (0, 3, 4, 7)
    assert CpuSplit.of(CORES, [OTHER], set()).left == (0, 1, 2, 3, 4, 5, 6, 7)
    assert CpuSplit.of(CORES, [JOB._replace(cores=(0, 1, 2, 3))], set()).left == ()


@pytest.mark.parametrize(
    ("cores", "now", "expected", "for_slurmd"),
    [
        ((1,), "", "0,2-4,6-7", ""),
        ((1,), "0-7", "0,2-4,6-7", ""),
        ((1,), "0,2-4,6-7", "", "0-7"),
        ((1,), "0,2,3,4,6,7", "", "0-7"),
        ((), "", "", ""),
        ((), "0-7", "", ""),
        ((), "0,2-4,6-7", "0-7", "0-7"),
        ((0, 1, 2, 3), "", "", ""),
        ((0, 1, 2, 3), "3,7", "0-7", "0-7"),
    ],
)
def test_wrong_cores_are_corrected(
    cores: tuple[int, ...], now: str, expected: str, for_slurmd: str
) -> None:
    split = CpuSplit.of(CORES, [JOB._replace(cores=cores)], set())
    assert split.correction(now, keeps_all=False) == expected
    assert split.correction(now, keeps_all=True) == for_slurmd


@given(st.sets(st.integers(0, 3)), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_cores_are_written_once(cores: set[int], native: set[int], now: set[int]) -> None:
    split = CpuSplit.of(CORES, [JOB._replace(cores=tuple(sorted(cores)))], native)
    text = ",".join(map(str, sorted(now)))
    text = split.correction(text, keeps_all=False) or text
    assert split.correction(text, keeps_all=False) == ""
    taken = {*CORES.cores_of(native), *cores}
    if len(taken) < 4:
        assert taken.isdisjoint(CORES.cores_of(listed(text) or range(8)))


class Pods:
    """Cgroups of Pods as plain files, because this kernel has no cpuset controller."""

    def __init__(self, root: Path) -> None:
        self.cgroups = PodCgroups(root)
        self._root = root
        self.off = OthersOff()

    def keep(self, claims: Mapping[str, Claim], native: Native = NOBODY) -> str:
        return self.off.keep(claims, list(self.cgroups.pods()), CORES, native)

    def start(self, uid: str) -> Path:
        place = self._root / f"kubepods/burstable/pod{uid}"
        place.mkdir(parents=True)
        (place / "cgroup.events").write_text("populated 1\n")
        (place / CPUS).write_text("\n")
        return place / CPUS


@pytest.fixture
def pods(tmp_path: Path) -> Pods:
    return Pods(tmp_path)


def test_pods_of_no_job_leave_cores_to_jobs_and_get_them_back(pods: Pods) -> None:
    files = {uid: pods.start(uid) for uid in (A, B, STATIC, UNKNOWN)}

    def kept(claims: Mapping[str, Claim], native: Native = NOBODY) -> list[str]:
        assert pods.keep(claims, native) == ""
        return [file.read_text().strip() for file in files.values()]

    assert kept({A: OTHER}) == ["", "", "", ""]
    assert kept(BOTH) == ["0,2-4,6-7", "", "0,2-4,6-7", ""]
    written = {uid: file.stat().st_mtime_ns for uid, file in files.items()}
    assert kept(BOTH) == ["0,2-4,6-7", "", "0,2-4,6-7", ""]
    assert written == {uid: file.stat().st_mtime_ns for uid, file in files.items()}
    assert kept({A: OTHER}, Native({3}, {A})) == ["0-7", "", "0-2,4-6", ""]
    assert kept({A: OTHER}) == ["0-7", "", "0-7", ""]


def test_pods_keep_cores_if_jobs_have_every_core(pods: Pods) -> None:
    file = pods.start(A)
    full = {A: OTHER, B: JOB._replace(cores=(0, 1, 2, 3))}
    with capture_logs() as logs:
        pods.keep(BOTH)
        for _ in range(3):
            pods.keep(full)
            assert file.read_text() == "0-7"
        pods.keep(BOTH)
    assert [(line["event"], line["cpus_left"]) for line in logs] == [
        ("jobs have every core: Pods of no job keep all", 0),
        ("jobs have every core no more", 6),
    ]
    assert file.read_text() == "0,2-4,6-7"


def test_pod_without_cores_file_is_named_and_other_pods_are_limited(pods: Pods) -> None:
    pods.start(A).unlink()
    static = pods.start(STATIC)
    assert pods.keep(BOTH).startswith("Pod kube-system/p: its cgroup has no cpuset.cpus")
    assert static.read_text() == "0,2-4,6-7"


def test_removed_cgroup_is_no_problem(pods: Pods) -> None:
    file = pods.start(A)
    found = list(pods.cgroups.pods())
    for each in (file, file.with_name("cgroup.events")):
        each.unlink()
    file.parent.rmdir()
    assert OthersOff().keep(BOTH, found, CORES, NOBODY) == ""


@pytest.mark.real
@pytest.mark.parametrize("off", [True, False])
def test_setting_limits_pods_once_all_jobs_are_known(node: Node, pods: Pods, off: bool) -> None:
    tree, first, cpus = node.tree, JOB._replace(cores=(0,)), Cpus.read()
    settings = Settings(node="n1", gres=node.gres, bpf=tree.bpf, keep_others_off_cores=off)
    file, keeper = pods.start(A), keeper_of(settings, pods.cgroups)
    keeper.read_cpus()
    claims = {A: OTHER, B: first}
    for known, native in ((None, NOBODY), (claims, None)):
        keeper.keep(known, native)
        assert file.read_text() == "\n"
    keeper.keep(claims, NOBODY)
    assert cpus.cores[1:], "this machine has one core: nothing can be left"
    left = CpuSplit.of(cpus, [first], set()).correction("", keeps_all=False)
    assert file.read_text() == (left if off else "\n")
