"""A trial reports how slurmctld ended without an error."""

import socket
from pathlib import Path

import pytest

from slurm_cluster.configuration.slurm_conf import parse
from slurm_cluster.configuration.trial import Trial


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("kill -SEGV $$", "SIGSEGV ended it, and last said: slurmctld: starting"),
        ("exit 1", "it ended, and last said: slurmctld: starting"),
        ("exec sleep 60", "it does not serve, and last said: slurmctld: starting"),
    ],
)
def test_trial_names_the_end_of_slurmctld(
    end: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_cluster.configuration.trial._WITHIN_S", 1.0)
    program = tmp_path / "slurmctld"
    program.write_text(f"#!/bin/sh\necho slurmctld: starting >&2\n{end}\n")
    program.chmod(0o755)
    conf = parse(f"ClusterName=c\nSlurmctldHost={socket.gethostname()}\n", lambda path: path)
    trial = Trial(tmp_path / "etc", tmp_path / "state", program=str(program))
    assert trial.problems({}, conf, frozenset()) == [words]
