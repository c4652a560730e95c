"""Tests of a short load run on real components, with the stub of slurmrestd: the calls are timed, and
Pods are bound."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.layout import CHECKOUT
from loadtest.harness.budgets import budgets
from loadtest.report.pages import PAGE, kept, renewed

KINDS = [kind for kind, budget in budgets("load-50").items() if isinstance(budget, dict)]


def test_page_shows_calls_of_a_load_beside_their_budgets() -> None:
    call = {"calls": 1234, "failed": 2, "p50_ms": 1.25, "p95_ms": 3.0, "p99_ms": 4.56, "p100_ms": 78.9}
    told = kept()
    at = {**told["conditions"], "minutes": 6.5, "slurm": "stub", "seconds": 60, "pods_per_s": 20.0}
    loads = [{"nodes": 1000, "calls": {"filter": call, "failed_calls": 2, "overdue_pods": 0}}]
    page = renewed(PAGE, {**told, "load": {"conditions": at, "loads": loads}})
    assert ", 6.5 minutes." in page
    assert "- 20 Pods a second for 60 s, Slurm: stub.\n\n|  | calls |" in page
    assert (
        f"| **1,000 Nodes** |{'  |' * 8}\n| filter | 1,234 | 2 | 1.2 | 3.0 | 4.6 | 78.9 | 5 | 50 |\n"
        in page
    )
    assert "| bind | - | - | - | - | - | - | 25 | 120 |\n" in page


def test_page_without_a_load_says_how_to_measure_one() -> None:
    assert "Not measured yet: run `make load`" in renewed(PAGE, {**kept(), "load": {}})


def test_figures_of_a_load_are_stored_beside_the_figures_of_bench(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text('{"scenarios": []}')
    assert kept(tmp_path) == {"scenarios": [], "load": {}}
    (tmp_path / "load.json").write_text('{"loads": []}')
    assert kept(tmp_path) == {"scenarios": [], "load": {"loads": []}}


@pytest.mark.real
@pytest.mark.alone
def test_twenty_seconds_of_load_at_50_nodes(tmp_path: Path) -> None:
    """The budgets for the times are two seconds, because the machine may be busy. No call may fail, and
    no Pod may be overdue."""
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
    load = json.loads((tmp_path / "load.json").read_text())
    assert "| **50 Nodes** |" in renewed(PAGE, {**kept(), "load": load})
    figures = json.loads((tmp_path / "50-nodes.json").read_text())
    assert load["loads"] == [{"nodes": 50, "calls": figures}]
    assert set(figures) == {*KINDS, "failed_calls", "overdue_pods"}
    assert (figures["failed_calls"], figures["overdue_pods"]) == (0, 0)
    assert figures["chain"]["calls"] > 100
    assert (tmp_path / "50-nodes.html").exists()
    assert (tmp_path / "50-nodes_stats.csv").exists()
