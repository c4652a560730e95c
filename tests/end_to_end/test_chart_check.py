"""Test of `helm test`: the rights that the chart gives to the Pod are enough for the check."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.actors import Actors
from tests.end_to_end.chart_accounts import kubeconfig_of

pytestmark = pytest.mark.real


def test_check_passes_with_the_service_account_of_its_pod(actors: Actors, tmp_path: Path) -> None:
    account = kubeconfig_of("check", actors.cluster, tmp_path)
    environment = {
        **os.environ,
        **actors.cluster.extender_environment,
        "SLURM_EXTENDER_KUBECONFIG": str(account),
    }
    command = [sys.executable, "-m", "extender", "check", "--namespace=default", "--timeout=60"]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
