"""The image of kube-scheduler, which is Kubernetes' own elsewhere."""

from __future__ import annotations

import subprocess

from deploy.local.programs.kubernetes_binaries import kubernetes_binaries
from deploy.local.progress import Report
from deploy.local.spec import KUBERNETES_RELEASES


def kubernetes_version(report: Report) -> str:
    """The tag that the chart asks for: v1.37.2."""
    binary = kubernetes_binaries(KUBERNETES_RELEASES[0], report)["kube-scheduler"]
    return subprocess.run(
        [binary, "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[-1]
