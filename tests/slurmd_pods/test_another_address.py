"""Tests that Slurm reaches a node after a change of the node's address (docs/concepts/pools.md)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.layout import CHECKOUT
from deploy.local.spec import DEBIAN_SUITES
from tests.slurmd_pods.another_address import ADDRESSES

pytestmark = pytest.mark.real


@pytest.mark.parametrize("release", DEBIAN_SUITES)
def test_jobs_run_on_a_node_that_comes_back_under_another_address(release: str, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.slurmd_pods.another_address", release, str(tmp_path / "c")]
    done = subprocess.run(
        ["unshare", "--net", *program], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [ADDRESSES[0], "root", ADDRESSES[1], "root"]
