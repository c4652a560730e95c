"""Tests of the names of the objects and of the scheduler: for every name of the release, Kubernetes
accepts the names."""

from __future__ import annotations

import json
import subprocess

import pytest

from deploy.local.chart import CHART, Rendered, Values
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from tests.chart_matrix import EXISTING, NEEDED, merged, with_needed

pytestmark = pytest.mark.real  # the first test builds Helm


def template(release: str, namespace: str, values: Values) -> subprocess.CompletedProcess[str]:
    command = [str(helm(silent)), "template", release, str(CHART), "--namespace", namespace]
    return subprocess.run(
        [*command, "--values", "-"],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("release", ["slurm-extender.a", "team.a"])
def test_service_name_has_no_dot(release: str) -> None:
    rendered = template(release, "default", NEEDED)
    assert rendered.returncode == 0, rendered.stderr
    services = [each for each in Rendered.parsed(rendered.stdout).manifests if each["kind"] == "Service"]
    (service,) = services
    assert "." not in service["metadata"]["name"]


@pytest.mark.parametrize(
    ("release", "namespace", "name"),
    [
        ("slurm", "tenant-slurm", "tenant-slurm-slurm"),
        ("r" * 20, "n" * 60, "n" * 60 + "-" + "r" * 2),
        ("slurm", "n" * 62, "n" * 62),
    ],
)
@pytest.mark.parametrize("mode", ["own", "existing"])
def test_blank_scheduler_name_is_namespace_and_release_everywhere(
    mode: str, release: str, namespace: str, name: str
) -> None:
    values = with_needed(EXISTING if mode == "existing" else {})

    def called(scheduler: str) -> str:
        named = template(release, namespace, merged(values, {"scheduler": {"name": scheduler}}))
        assert named.returncode == 0, named.stderr
        return named.stdout

    blank = called("")
    assert blank == called(name)
    assert f"schedulerName: {name}\n" in blank
    assert called("slurm-scheduler") == template(release, namespace, values).stdout


def test_blank_scheduler_name_is_never_the_default_scheduler() -> None:
    values = with_needed({"scheduler": {"name": ""}})
    refused = template("scheduler", "default", values)
    assert refused.returncode != 0
    assert "scheduler.name: blank is default-scheduler here" in refused.stderr
