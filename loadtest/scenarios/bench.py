"""Pods through the whole path, beside what bounds it (table.toml); an hour on two cores."""

import itertools
import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final

import psutil
import typer

from deploy.local.kubernetes_binaries import kubernetes_binaries
from deploy.local.layout import CHECKOUT
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from loadtest.harness.budgets import budgets, judged
from loadtest.harness.command import BUILD, command
from loadtest.report.figures import Outcome, key_figures
from loadtest.scenarios.stage import Sizes, run_stage
from loadtest.scenarios.table import PODS, SCENARIOS, STEADY_PODS_PER_S, Scenario

_SCALE: Final = BUILD / "scale.json"
_OF_THIS_RUN_S: Final = 600.0
_LOOKS_S: Final = 5.0


def bench(
    *,
    only: Annotated[list[str], typer.Option(help="Part of the name of stages or scenarios.")] = [],  # noqa: B006
    nodes: Annotated[int, typer.Option(min=0, help="Instead of what the scenarios say.")] = 0,
    pods: Annotated[int, typer.Option(min=1, help="Of a burst, and of all steady loads.")] = PODS,
    repeats: Annotated[int, typer.Option(min=0, help="Of each load, at most; 0: as listed.")] = 0,
    listing: Annotated[bool, typer.Option("--list", help="Say what would be measured.")] = False,
    figures: Annotated[Path, typer.Option(help="Where they go.")] = BUILD / "bench.json",
) -> None:
    scenarios = [_scaled(each, nodes, repeats) for each in chosen(SCENARIOS, only)]
    if listing or not scenarios:
        typer.echo("\n".join(f"{each.stage}: {each.name}" for each in scenarios))
        raise typer.Exit(0 if listing else 2)
    as_listed = pods == PODS and not repeats
    partly = bool(only or nodes or not as_listed)
    with command(figures) as run:
        conditions, outcomes = _conditions(pods), list[Outcome]()
        scale = just_measured(_SCALE)
        for stage, those in itertools.groupby(scenarios, lambda each: each.stage):
            run.report(f"{stage}:")
            directory = run.directory / str(len(outcomes))
            outcomes += run_stage(list(those), Sizes(pods, STEADY_PODS_PER_S), directory, run.report)
            run.broken = any(outcome.broken for outcome in outcomes)
            conditions["minutes"] = round(run.report.elapsed_s / 60, 1)
            told = [outcome.as_json() for outcome in outcomes]
            verdicts = judged(budgets("bench"), key_figures(told if as_listed else [], scale))
            key = {each.key: each.value for each in verdicts}
            measured = {**key, "conditions": conditions, "scenarios": told}
            run.write(measured, verdicts)  # which is kept, whatever becomes of the next stage
        for outcome in outcomes:
            if outcome.broken:
                scenario, what = outcome.scenario, outcome.broken
                run.console.print(f"BROKEN: {scenario.stage}: {scenario.name}: {what}", style="red")
        run.conclude(measured, verdicts, partly=partly)


def chosen(scenarios: Sequence[Scenario], only: Sequence[str]) -> list[Scenario]:
    """Those of which the stage or the name contains one of these; all, where there are none."""
    return [
        each
        for each in scenarios
        if not only or any(part in each.stage or part in each.name for part in only)
    ]


def _scaled(scenario: Scenario, nodes: int, repeats: int) -> Scenario:
    if nodes:
        scenario = replace(scenario, nodes=nodes, stage=f"{scenario.stage}, on {nodes} instead")
    if repeats:
        bursts, steadies = (min(repeats, each) for each in (scenario.bursts, scenario.steadies))
        scenario = replace(scenario, bursts=bursts, steadies=steadies)
    return scenario


def _conditions(pods: int) -> dict[str, Any]:
    return {
        "begun": datetime.now(UTC).isoformat(timespec="minutes"),
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "kernel": platform.release().partition("-")[0],
        "commit": _said("git", "-C", str(CHECKOUT), "describe", "--always", "--dirty"),
        "python": platform.python_version(),
        "kubernetes": _kubernetes_version(),
        "cpu_busy_percent_before": psutil.cpu_percent(_LOOKS_S),
        "pods": pods,
        "steady_pods_per_s": STEADY_PODS_PER_S,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _kubernetes_version() -> str:
    """Of the kube-scheduler that the clusters start: "v1.37.2"."""
    binaries = kubernetes_binaries(ClusterSpec().kubernetes_release, silent)
    return _said(str(binaries["kube-scheduler"]), "--version").split()[-1]


def _said(*command: str) -> str:
    """ "" where the program fails: git does not know every checkout."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def just_measured(path: Path) -> dict[str, Any]:
    """What `make bench` has measured before this; nothing where another run has left it."""
    age_s = time.time() - path.stat().st_mtime if path.exists() else inf
    found: dict[str, Any] = json.loads(path.read_text()) if age_s < _OF_THIS_RUN_S else {}
    return found
