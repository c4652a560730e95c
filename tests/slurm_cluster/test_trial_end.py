"""Tests of trials in which another program replaces slurmctld: the program ends in different ways, or
files of slurmd have errors."""

import socket
from pathlib import Path

import pytest

from slurm_cluster.configuration.configurer import Configurer, Places, Verdict
from slurm_cluster.configuration.controller import Controller
from slurm_cluster.configuration.folders import File, Kept
from slurm_cluster.configuration.slurm_conf import parse
from slurm_cluster.configuration.trial import Trial
from tests.slurm_programs import on_path

CONF = f"ClusterName=c\nGresTypes=nic\nSlurmctldHost={socket.gethostname()}\n"
FILES = {"slurm.conf": File(CONF.encode()), "gres.conf": File(b"Name=nic Nam=nic\n")}
SERVES = "slurmctld: Running as primary controller"


def put_program(folder: Path, prints: str, end: str = "exec sleep 60") -> Path:
    program = folder / "slurmctld"
    program.write_text(f"#!/bin/sh\necho {prints} >&2\n{end}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("kill -SEGV $$", "SIGSEGV ended slurmctld; last line of its log: slurmctld: starting"),
        ("exit 1", "slurmctld ended; last line of its log: slurmctld: starting"),
        ("exec sleep 60", "slurmctld does not serve; last line of its log: slurmctld: starting"),
    ],
)
def test_a_trial_reports_how_slurmctld_ended(
    end: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_cluster.configuration.trial._WITHIN_S", 1.0)
    program = put_program(tmp_path, "slurmctld: starting", end)
    trial = Trial(tmp_path / "etc", tmp_path / "state", program=str(program))
    assert trial.problems({}, parse(CONF, str), frozenset()) == [words]


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        (b"[]\n", "topology.yaml has no topology: SIGSEGV ended slurmctld; "),
        (b"- tree: {}\n", "SIGSEGV ended slurmctld; "),
        (b"{", "SIGSEGV ended slurmctld; "),
    ],
)
def test_a_trial_reports_the_cause_of_a_crash(text: bytes, begins: str, tmp_path: Path) -> None:
    program = put_program(tmp_path, "slurmctld: starting", "kill -SEGV $$")
    trial = Trial(tmp_path / "etc", tmp_path / "state", program=str(program))
    (found,) = trial.problems({"topology.yaml": File(text)}, parse(CONF, str), frozenset())
    assert found.startswith(begins)


@pytest.mark.parametrize(
    ("accepted", "found"), [((), ["gres.conf: unknown key Nam"]), ((r"gres\.conf: .* key Nam",), [])]
)
def test_errors_in_files_of_slurmd_may_be_accepted(
    accepted: tuple[str, ...], found: list[str], tmp_path: Path
) -> None:
    program = put_program(tmp_path, SERVES)
    trial = Trial(tmp_path / "etc", tmp_path / "state", accepted, program=str(program))
    assert trial.problems(FILES, parse(CONF, str), frozenset()) == found


def test_a_kept_configuration_starts_with_any_file_of_slurmd(tmp_path: Path) -> None:
    """slurmctld accepted the kept configuration earlier, so the configurer starts slurmctld with wrong
    files of slurmd too."""
    put_program(tmp_path, SERVES)
    Kept(tmp_path / "kept").keep(FILES)
    places = Places(tmp_path / "wanted", tmp_path / "running", tmp_path / "kept")
    with on_path(tmp_path):
        assert Configurer(places, Controller(1.0)).begin().verdict is Verdict.CURRENT
