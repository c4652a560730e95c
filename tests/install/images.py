"""Finds the version for the tests' own image of kube-scheduler. Users get this image from Kubernetes'
registry."""

from __future__ import annotations

import subprocess

from deploy.local.programs.kubernetes_binaries import kubernetes_binaries
from deploy.local.progress import Report
from deploy.local.spec import KUBERNETES_RELEASES


def kubernetes_version(report: Report) -> str:
    """Returns the tag that the chart uses for the image, such as v1.37.2."""
    binary = kubernetes_binaries(KUBERNETES_RELEASES[0], report)["kube-scheduler"]
    return subprocess.run(
        [binary, "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[-1]
