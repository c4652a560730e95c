"""Tests of the error about missing prerequisites: the error names all missing prerequisites at once, and
says how to install each."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.local import prerequisites
from deploy.local.__main__ import app
from deploy.local.chart import needs_helm
from deploy.local.demo.story import NODES, cluster_of
from deploy.local.errors import MissingPrerequisitesError
from deploy.local.prerequisites import check_prerequisites
from deploy.local.programs.helm_binary import helm_place
from deploy.local.spec import ClusterSpec


@pytest.fixture
def _nothing_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SLURM_TREES", raising=False)


def without(monkeypatch: pytest.MonkeyPatch, *tools: str) -> None:
    which = shutil.which

    def find(tool: str, path: str | None = None) -> str | None:
        return None if tool in tools else which(tool, path=path)

    monkeypatch.setattr(shutil, "which", find)


@pytest.mark.usefixtures("_nothing_cached")
def test_everything_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    without(monkeypatch, "apt-get", "go", "etcd")
    with pytest.raises(MissingPrerequisitesError) as caught:
        check_prerequisites(ClusterSpec())
    assert [line.split()[0] for line in caught.value.missing] == ["root", "apt", "Go"]


@pytest.mark.usefixtures("_nothing_cached")
def test_slurm_alone_needs_no_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(prerequisites, "_apt_problems", lambda: ())
    without(monkeypatch, "go")
    check_prerequisites(ClusterSpec(kubernetes=False, extender=False))


@pytest.mark.usefixtures("_nothing_cached")
def test_the_demo_needs_no_helm() -> None:
    assert not needs_helm(cluster_of(NODES))
    assert needs_helm(replace(cluster_of(NODES), self_signed=True))
    helm_place().mkdir(parents=True)
    assert needs_helm(cluster_of(NODES)), "it has been built, and renders the chart of this checkout"


@pytest.mark.usefixtures("_nothing_cached")
def test_too_old_version_of_go_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(prerequisites, "_go_version", lambda: (1, 21))
    monkeypatch.setattr(prerequisites, "needs_build", lambda _release: True)
    with pytest.raises(MissingPrerequisitesError, match=r"Go 1\.21 is too old: install Go 1\.26"):
        check_prerequisites(ClusterSpec())


def test_command_line_names_missing_prerequisites_and_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    outcome = CliRunner().invoke(app, ["up", "--directory", str(tmp_path / "cluster")])
    assert outcome.exit_code == 2
    assert outcome.output.startswith("missing: root is needed")


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    outcome = CliRunner().invoke(app, ["up", "--directory", str(tmp_path)])
    assert outcome.exit_code == 1
    assert "holds other files" in outcome.output
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.parametrize("command", ["down", "status"])
def test_folder_without_a_cluster_is_an_error(command: str, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, [command, "--directory", str(tmp_path)])
    assert outcome.exit_code == 1
    assert "no cluster here" in outcome.output
