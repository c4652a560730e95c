"""Renders the chart slurm with Helm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from deploy.charts.slurm_pages import CHART
from deploy.local.chart import Manifest, Rendered, Values
from deploy.local.errors import ClusterError
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent

NAMESPACE = "slurm"


def run_helm(*command: str, values: Values | None = None) -> str:
    """Runs Helm and returns the output. Raises ClusterError with Helm's error message."""
    given = ["--values", "-"] if values is not None else []
    done = subprocess.run(
        [str(helm(silent)), *command, *given],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ClusterError(done.stdout + done.stderr)
    return done.stdout


def text(values: Values, *options: str, release: str = "slurm") -> str:
    """Returns the objects as Helm's text. Raises ClusterError."""
    return run_helm("template", release, str(CHART), "--namespace", NAMESPACE, *options, values=values)


def rendered(values: Values, release: str = "slurm") -> Rendered:
    """Returns objects that tests share and must not change. Raises ClusterError."""
    return _rendered(json.dumps(values), release)


@cache
def _rendered(values: str, release: str) -> Rendered:
    return Rendered.parsed(text(json.loads(values), release=release))


def files(chart: Rendered) -> dict[str, str]:
    """Returns the files of /etc/slurm, by name."""
    found: dict[str, str] = chart.find("ConfigMap", "slurm-config")["data"]
    return found


def pod_specs(chart: Rendered) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields kind and name of each workload of the chart, with the spec of the workload's Pods."""
    for each in chart.manifests:
        template = _template(each)
        if template is not None:
            yield f"{each['kind']} {each['metadata']['name']}", template["spec"]


def _template(manifest: Manifest) -> Any:
    spec = manifest.get("spec") or {}
    return spec.get("jobTemplate", {}).get("spec", spec).get("template")


def write(folder: Path, found: dict[str, str]) -> None:
    """Writes executable files, as in the Pod's volume."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in found.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
