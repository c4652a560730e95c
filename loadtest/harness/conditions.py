"""Describes the machine and the versions of a measurement, for the file with the figures."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil

from deploy.local.layout import CHECKOUT
from deploy.local.programs.kubernetes_binaries import kubernetes_binaries
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec

_LOOKS_S: Final = 5.0


def conditions() -> dict[str, Any]:
    """Returns the machine, the versions and the current load of the machine. Measures the load for 5
    s."""
    processor = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    binaries = kubernetes_binaries(ClusterSpec().kubernetes_release, silent)
    return {
        "begun": datetime.now(UTC).isoformat(timespec="minutes"),
        "cpus": os.cpu_count(),
        "processor": processor[1] if processor else platform.machine(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "kernel": platform.release().partition("-")[0],
        "commit": _output("git", "-C", str(CHECKOUT), "describe", "--always", "--dirty"),
        "python": platform.python_version(),
        "kubernetes": _output(str(binaries["kube-scheduler"]), "--version").split()[-1],
        "cpu_busy_percent_before": psutil.cpu_percent(_LOOKS_S),
    }


def _output(*command: str) -> str:
    """Returns the output of a program. Returns "" if the program fails, because not every checkout has
    git's data."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
