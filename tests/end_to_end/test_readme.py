"""Test of README.md: the first Pod, and the output of the commands that follow."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest
import yaml

from deploy.local.demo.story import NODES, cluster_of
from tests.end_to_end.actors import Actors
from tests.eventually import eventually
from tests.readme import first_pod, seen_of_the_first_pod

pytestmark = pytest.mark.real


def shape(printed: str) -> str:
    """Replaces the job id and the node name. In the output, both differ from README.md, but have the
    same length."""
    return re.sub(r"\bnode-\d\b", "node-N", re.sub(r"\b\d{8}\b", "JOBID", printed))


def test_first_pod_of_readme_gives_the_output_in_readme(actors: Actors) -> None:
    assert actors.cluster.spec.slurm_size == cluster_of(NODES).slurm_size
    name = yaml.safe_load(first_pod())["metadata"]["name"]
    made = actors.kubectl("create", "-f", "-", stdin=first_pod())
    assert made.returncode == 0, made.stderr
    eventually(lambda: actors.pods()[name]["status"]["phase"] == "Running", f"{name} runs")
    for command, printed in seen_of_the_first_pod():
        program, *arguments = shlex.split(command)
        argv = [str(actors.cluster.directory / "bin" / program), *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert shape(done.stdout) == shape(printed)
