"""Objects have names that Kubernetes takes, whatever the release is called."""

from __future__ import annotations

import json
import subprocess

import pytest

from deploy.local.chart import CHART, Rendered
from deploy.local.helm_binary import helm
from deploy.local.progress import silent
from tests.chart.matrix import NEEDED

pytestmark = pytest.mark.real  # Helm is built, once


@pytest.mark.parametrize("release", ["slurm-extender.a", "team.a"])
def test_a_service_has_no_dot_of_the_release(release: str) -> None:
    command = [str(helm(silent)), "template", release, str(CHART), "--values", "-"]
    done = subprocess.run(command, input=json.dumps(NEEDED), capture_output=True, text=True, check=True)
    (service,) = [each for each in Rendered.parsed(done.stdout).manifests if each["kind"] == "Service"]
    assert "." not in service["metadata"]["name"]
