"""A short load run on real components, with Slurm's stub: what it times works, and Pods are bound."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.layout import CHECKOUT
from loadtest.harness.budgets import budgets

KINDS = [kind for kind, budget in budgets("load-50").items() if isinstance(budget, dict)]


@pytest.mark.real
@pytest.mark.alone
def test_twenty_seconds_of_load_at_50_nodes(tmp_path: Path) -> None:
    """The machine may be busy: less than two seconds is quick enough here; but nothing may fail."""
    wide = "{ p50_ms = 2000, p99_ms = 2000 }"
    lines = [
        "[load-50]",
        "failed_calls = 0",
        "overdue_pods = 0",
        *(f'"{kind}" = {wide}' for kind in KINDS),
    ]
    (tmp_path / "budgets.toml").write_text("\n".join(lines))
    options = ["--nodes=50", "--seconds=20", "--rate=10", f"--results={tmp_path}"]
    command = [
        sys.executable,
        "-m",
        "loadtest",
        "load",
        *options,
        f"--budgets={tmp_path / 'budgets.toml'}",
    ]
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "kept: 50 Nodes: chain p99_ms" in done.stdout
    figures = json.loads((tmp_path / "50-nodes.json").read_text())
    assert set(figures) == {*KINDS, "failed_calls", "overdue_pods"}
    assert (figures["failed_calls"], figures["overdue_pods"]) == (0, 0)
    assert figures["chain"]["calls"] > 100
    assert (tmp_path / "50-nodes.html").exists()
    assert (tmp_path / "50-nodes_stats.csv").exists()
