"""Renders the chart slurm with Helm, and finds the login Pod in the result."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from deploy.local.chart import Manifest, Rendered
from deploy.local.errors import ClusterError
from deploy.local.layout import CHECKOUT
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent

CHART = CHECKOUT / "deploy/charts/slurm"
_CONTROLLER = "slurmctld-0.default.svc:6817"


def template(values: dict[str, Any], *options: str) -> str:
    """Returns the objects of a Helm release with the name `slurm`, as text. Raises ClusterError with
    Helm's message."""
    command = [str(helm(silent)), "template", "slurm", str(CHART), "--values", "-", *options]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"the chart was not rendered: {done.stderr.strip()}")
    return done.stdout


def rendered(values: dict[str, Any], slurmctld: str = _CONTROLLER) -> Rendered:
    """Returns the objects of a Helm release with the name `slurm`. In these objects, slurmctld has the
    address `slurmctld` (HOST:PORT)."""
    return Rendered.parsed(template(values).replace(_CONTROLLER, slurmctld))


def pod_of(chart: Rendered, kind: str, name: str) -> Manifest:
    """Returns the spec of the Pods of a workload."""
    spec: Manifest = chart.find(kind, name)["spec"]["template"]["spec"]
    return spec
