"""A short load run on real components, with Slurm's stub: what it times works, and Pods are bound."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.layout import CHECKOUT
from loadtest.budgets import BUDGETS, budgets

KINDS = list(budgets(BUDGETS, 50))


@pytest.mark.real
@pytest.mark.alone
def test_twenty_seconds_of_load_at_50_nodes(tmp_path: Path) -> None:
    """The machine may be busy: less than two seconds is quick enough here; but nothing may fail."""
    wide = "{ p50_ms = 2000, p99_ms = 2000 }"
    lines = ["[nodes-50]", *(f'"{kind}" = {wide}' for kind in KINDS)]
    (tmp_path / "budgets.toml").write_text("\n".join(lines))
    options = ["--nodes=50", "--seconds=20", "--rate=10", f"--results={tmp_path}"]
    command = [sys.executable, "-m", "loadtest.load", *options, f"--budgets={tmp_path / 'budgets.toml'}"]
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "50 Nodes: all budgets are kept" in done.stdout
    figures = json.loads((tmp_path / "50-nodes.json").read_text())
    assert set(figures) == set(KINDS)
    assert all(each["failed"] == 0 for each in figures.values())
    assert figures["chain"]["calls"] > 100
    assert (tmp_path / "50-nodes.html").exists()
    assert (tmp_path / "50-nodes_stats.csv").exists()
