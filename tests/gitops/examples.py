"""The examples of deploy/gitops, and what Helm makes of both charts by their values."""

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
"""Of both releases."""


def application(chart: str) -> Manifest:
    """Argo CD's object."""
    found: Manifest = yaml.safe_load((FOLDER / "argocd" / f"{chart}.yaml").read_text())
    return found


def helm_release(chart: str) -> Manifest:
    """Flux's object."""
    found: Manifest = yaml.safe_load((FOLDER / "flux" / f"{chart}.yaml").read_text())
    return found


def values(chart: str) -> Values:
    """The values of Argo CD's example."""
    found: Values = application(chart)["spec"]["source"]["helm"]["valuesObject"]
    return found


def rendered(chart: str, given: Values) -> Rendered:
    """The objects of the chart. Raises ClusterError with Helm's words."""
    path = str(CHECKOUT / "deploy/charts" / chart)
    return Rendered.parsed(run_helm("template", chart, path, "--namespace", NAMESPACE, values=given))
