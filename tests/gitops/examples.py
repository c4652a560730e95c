"""Reads the examples of deploy/gitops, and renders both charts with the examples' values."""

from __future__ import annotations

from typing import Final

import yaml

from deploy.local.chart import Manifest, Rendered, Values
from deploy.local.layout import CHECKOUT
from tests.slurm_chart.rendering import run_helm

FOLDER: Final = CHECKOUT / "deploy/gitops"
FILES: Final = sorted(FOLDER.rglob("*.yaml"))
CHARTS: Final = ("slurm", "slurm-extender")
NAMESPACE: Final = "slurm"
"""Namespace of both Helm releases."""


def application(chart: str) -> Manifest:
    """Returns Argo CD's Application for a chart."""
    found: Manifest = yaml.safe_load((FOLDER / "argocd" / f"{chart}.yaml").read_text())
    return found


def helm_release(chart: str) -> Manifest:
    """Returns Flux's HelmRelease for a chart."""
    found: Manifest = yaml.safe_load((FOLDER / "flux" / f"{chart}.yaml").read_text())
    return found


def values(chart: str) -> Values:
    """Returns the values in Argo CD's example."""
    found: Values = application(chart)["spec"]["source"]["helm"]["valuesObject"]
    return found


def rendered(chart: str, given: Values) -> Rendered:
    """Returns the objects of the chart. Raises ClusterError with Helm's message."""
    path = str(CHECKOUT / "deploy/charts" / chart)
    return Rendered.parsed(run_helm("template", chart, path, "--namespace", NAMESPACE, values=given))
