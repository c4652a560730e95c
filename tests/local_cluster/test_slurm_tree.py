"""Tests of Slurm trees (unpacked packages of Debian): a tree is kept only if Slurm's programs work in
the tree. If a change in Debian's packages breaks a program, the unpacking fails with an error."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.layout import CHECKOUT
from deploy.local.programs import debian
from deploy.local.programs.cache import build_once
from deploy.local.progress import silent
from deploy.local.slurm import database
from deploy.local.slurm import tree as slurm_tree
from deploy.local.slurm.database import choose_client_library
from deploy.local.slurm.tree import require_release, tree_place
from deploy.local.spec import ClusterSpec


class Slurmdbd:
    """A slurmdbd that works only with the client libraries of some suites. Records which suites were
    tried."""

    def __init__(self, *works_with: str, own: str = "forky", unreachable: str = "") -> None:
        self._works_with, self._unreachable = works_with, unreachable
        self._has = own
        self.taken: list[str] = []

    def take(self, suite: str) -> None:
        if suite == self._unreachable:
            raise ClusterError(f"no {suite} today")
        self._has = suite
        self.taken.append(suite)

    def trial(self) -> None:
        if self._has not in self._works_with:
            raise ClusterError(f"error 5027 of {self._has}")


def choose(slurmdbd: Slurmdbd, own: str = "forky") -> str:
    return choose_client_library(own, slurmdbd.take, slurmdbd.trial)


def test_a_slurmdbd_that_works_with_its_own_library_gets_no_other() -> None:
    slurmdbd = Slurmdbd("forky", "trixie", "bookworm")
    assert choose(slurmdbd) == "forky"
    assert slurmdbd.taken == []


def test_the_other_libraries_are_tried_until_one_works() -> None:
    slurmdbd = Slurmdbd("bookworm")
    assert choose(slurmdbd) == "bookworm"
    assert slurmdbd.taken == ["trixie", "bookworm"]


def test_the_library_that_the_tree_came_with_is_tried_once() -> None:
    slurmdbd = Slurmdbd("bookworm", own="trixie")
    assert choose(slurmdbd, own="trixie") == "bookworm"
    assert slurmdbd.taken == ["bookworm"]


def test_a_suite_that_gives_no_library_is_passed_over() -> None:
    assert choose(Slurmdbd("bookworm", unreachable="trixie")) == "bookworm"


def test_error_names_each_library_and_its_message() -> None:
    with pytest.raises(ClusterError) as refused:
        choose(Slurmdbd(unreachable="trixie"))
    assert str(refused.value).splitlines() == [
        "slurmdbd works with no libmariadb that Debian has:",
        "with libmariadb of Debian forky: error 5027 of forky",
        "with libmariadb of Debian trixie: no trixie today",
        "with libmariadb of Debian bookworm: error 5027 of bookworm",
    ]


def test_suite_with_another_release_of_slurm_is_an_error() -> None:
    require_release("26.05", "slurmctld", "slurm-wlm 26.05.5\n")
    with pytest.raises(ClusterError, match=r"slurmctld should be of Slurm 26\.05.*26\.11\.0"):
        require_release("26.05", "slurmctld", "slurm-wlm 26.11.0\n")


def test_nothing_is_left_of_a_build_that_failed(tmp_path: Path) -> None:
    def build(place: Path) -> None:
        place.mkdir()
        (place / "something").touch()
        raise ClusterError("it does not work")

    place = tmp_path / "cache" / "built"
    with pytest.raises(ClusterError, match="it does not work"):
        build_once(place, build, silent)
    assert [path.name for path in place.parent.iterdir()] == ["built.lock"]


def test_trees_are_in_slurm_trees_or_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SLURM_TREES", raising=False)
    assert tree_place(ClusterSpec()).parent == tmp_path / "cache" / "slurm-extender"
    monkeypatch.setenv("SLURM_TREES", str(tmp_path / "trees"))
    assert tree_place(ClusterSpec()).parent == tmp_path / "trees"


def test_each_run_of_ci_unpacks_trees_of_its_own(tmp_path: Path) -> None:
    """Instead of `make`, a script runs and prints its arguments and two variables."""
    checkout, programs = tmp_path / "checkout", tmp_path / "programs"
    earlier = checkout / "build" / "slurm-trees" / "slurm-26.05"
    for folder in (checkout / ".ci", programs, earlier):
        folder.mkdir(parents=True)
    run = checkout / ".ci" / "run"
    run.write_text((CHECKOUT / ".ci" / "run").read_text())
    make = programs / "make"
    make.write_text('#!/bin/sh\necho "$* CI=$CI $SLURM_TREES"\n')
    for script in (run, make):
        script.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    said = subprocess.run([run], env={"PATH": path}, capture_output=True, text=True, check=True).stdout
    first, second = said.splitlines()
    assert first == f"test CI=true {earlier.parent}"
    found = re.fullmatch(f"test-slurm-chart TESTS=(.+)::(.+) CI=true {earlier.parent}", second)
    assert found
    assert f"def {found[2]}(" in (CHECKOUT / found[1]).read_text()
    assert not earlier.exists()


Unpacks = Callable[[ClusterSpec, Callable[[Path], None]], None]


@pytest.fixture
def unpacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unpacks:
    """Returns a function that unpacks a tree, where an altered copy of this machine's tree replaces
    Debian's packages. The new tree is in a folder of the test."""

    def change(spec: ClusterSpec, alter: Callable[[Path], None]) -> None:
        good, _ = Cluster.prepare(spec)
        unpack = debian.unpack

        def changed(suite: str, packages: Sequence[str], place: Path) -> None:
            if "slurmctld" not in packages:
                unpack(suite, packages, place)
                return
            place.parent.mkdir(exist_ok=True)
            subprocess.run(["cp", "--archive", str(good), str(place)], check=True)
            shutil.rmtree(place / database.TEMPLATE, ignore_errors=True)
            alter(place)

        monkeypatch.setattr(slurm_tree, "unpack", changed)
        monkeypatch.setenv("SLURM_TREES", str(tmp_path / "trees"))

    return change


@pytest.mark.real
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("usr/sbin/slurmd-wlm", "slurmd"),
        ("usr/lib/*/slurm-wlm/auth_jwt.so", "jwt"),
    ],
)
def test_tree_with_a_broken_program_is_refused(unpacks: Unpacks, broken: str, said: str) -> None:
    spec = ClusterSpec(kubernetes=False, extender=False)

    def break_it(place: Path) -> None:
        (path,) = place.glob(broken)
        path.write_bytes(b"")

    unpacks(spec, break_it)
    with pytest.raises(ClusterError, match=said):
        Cluster.prepare(spec)
    assert [path.suffix for path in tree_place(spec).parent.iterdir()] == [".lock"]


@pytest.mark.real
def test_tree_with_a_broken_libmariadb_gets_another_libmariadb(unpacks: Unpacks, tmp_path: Path) -> None:
    spec = ClusterSpec(nodes=1, kubernetes=False, extender=False, accounting=True, release="24.11")
    said: list[str] = []

    def break_it(place: Path) -> None:
        (library,) = place.glob("usr/lib/*/libmariadb.so.3")
        library.write_bytes(b"")

    unpacks(spec, break_it)
    tree, _ = Cluster.prepare(spec, report=said.append)
    assert "libmariadb" in said[-1]
    assert tree == tree_place(spec)
    with Cluster.up(spec, tmp_path / "cluster") as cluster:
        known = cluster.run_slurm("sacctmgr", "-nP", "show", "cluster", "format=Cluster").stdout
    assert known
