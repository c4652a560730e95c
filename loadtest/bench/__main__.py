"""`python -m loadtest.bench`: Pods through the whole path, beside what bounds it; an hour on two cores.

Exit status 1: a scenario is broken, or ours falls short of what it is held to.
"""

import itertools
import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final

import psutil
import typer
from rich.console import Console

from deploy.local.demo.screen import make_console
from deploy.local.errors import MissingPrerequisitesError
from deploy.local.kubernetes_binaries import kubernetes_binaries
from deploy.local.layout import CHECKOUT
from deploy.local.progress import Stopwatch, silent
from deploy.local.spec import ClusterSpec
from loadtest.bench.held_to import Measured, Verdict, verdicts
from loadtest.bench.results import Outcome
from loadtest.bench.run import Sizes, run_stage
from loadtest.bench.scenarios import PODS, SCENARIOS, STEADY_PODS_PER_S, Scenario

_SCALE: Final = CHECKOUT / "build/scale.json"
_OF_THIS_RUN_S: Final = 600.0
_LOOKS_S: Final = 5.0
_COLOURS: Final = {True: "green", False: "red", None: "yellow"}

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def bench(
    *,
    only: Annotated[list[str], typer.Option(help="Part of the name of stages or scenarios.")] = [],  # noqa: B006
    nodes: Annotated[int, typer.Option(min=0, help="Instead of what the scenarios say.")] = 0,
    pods: Annotated[int, typer.Option(min=1, help="Of a burst, and of all steady loads.")] = PODS,
    repeats: Annotated[int, typer.Option(min=0, help="Of each load, at most; 0: as listed.")] = 0,
    listing: Annotated[bool, typer.Option("--list", help="Say what would be measured.")] = False,
    figures: Annotated[Path, typer.Option(help="Where they go.")] = CHECKOUT / "build/bench.json",
) -> None:
    console = make_console()
    scenarios = [_scaled(each, nodes, repeats) for each in chosen(SCENARIOS, only)]
    if listing or not scenarios:
        for each in scenarios:
            console.print(f"{each.stage}: {each.name}")
        raise typer.Exit(0 if listing else 2)
    figures.unlink(missing_ok=True)
    sizes, stopwatch = Sizes(pods, STEADY_PODS_PER_S), Stopwatch(console.print)
    as_listed = pods == PODS and not repeats
    conditions, outcomes, scale = _conditions(sizes), list[Outcome](), just_measured(_SCALE)
    try:
        for stage, those in itertools.groupby(scenarios, lambda each: each.stage):
            stopwatch(f"{stage}:")
            outcomes += run_stage(list(those), sizes, stopwatch)
            conditions["minutes"] = round(stopwatch.elapsed_s / 60, 1)
            measured = Measured([each.as_json() for each in outcomes], scale, as_listed)
            judged = _write(figures, conditions, measured)
    except KeyboardInterrupt:
        console.print("interrupted; the clusters are down", style="red")
        raise typer.Exit(130) from None
    except MissingPrerequisitesError as error:
        for line in error.missing:
            console.print(f"missing: {line}", style="red")
        raise typer.Exit(2) from None
    _conclude(judged, outcomes, figures, console)
    accepted = {True, None} if only or nodes or not as_listed else {True}  # a part measures a part
    good = not any(each.broken for each in outcomes) and all(each.kept in accepted for each in judged)
    raise typer.Exit(0 if good else 1)


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


def _conditions(sizes: Sizes) -> dict[str, Any]:
    memory_gb = psutil.virtual_memory().total / 1e9
    return {
        "begun": datetime.now(UTC).isoformat(timespec="minutes"),
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(memory_gb),
        "kernel": platform.release().partition("-")[0],
        "commit": _commit(),
        "python": platform.python_version(),
        "kubernetes": _kubernetes_version(),
        "cpu_busy_percent_before": psutil.cpu_percent(_LOOKS_S),
        **asdict(sizes),
    }


def _commit() -> str:
    """What is measured; "" where git does not know it."""
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _kubernetes_version() -> str:
    """Of the kube-scheduler that the clusters start: "v1.36.2"."""
    binaries = kubernetes_binaries(ClusterSpec().kubernetes_release, silent)
    told = subprocess.run(
        [binaries["kube-scheduler"], "--version"], capture_output=True, text=True, check=True
    )
    return told.stdout.split()[-1]


def just_measured(path: Path) -> dict[str, Any]:
    """What `make bench` has measured before this; nothing where another run has left it."""
    age_s = time.time() - path.stat().st_mtime if path.exists() else inf
    found: dict[str, Any] = json.loads(path.read_text()) if age_s < _OF_THIS_RUN_S else {}
    return found


def _write(path: Path, conditions: dict[str, Any], measured: Measured) -> list[Verdict]:
    """What is held to stands first, each key with its budget."""
    judged = verdicts(measured)
    told: dict[str, Any] = {}
    for each in judged:
        told |= {each.key: each.value, f"{each.key}_budget": each.limit}
    told |= {"verdicts": [asdict(each) | {"word": each.word} for each in judged]}
    told |= {"conditions": conditions, "scenarios": measured.scenarios}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told, indent=1) + "\n")
    return judged


def _conclude(
    judged: Sequence[Verdict], outcomes: Sequence[Outcome], path: Path, console: Console
) -> None:
    for each in judged:
        bound = "at least" if each.at_least else "at most"
        words = f"{each.word}: {each.key} {each.value} ({bound} {each.limit:g}): {each.words}"
        console.print(words, style=_COLOURS[each.kept])
    for outcome in outcomes:
        if outcome.broken:
            scenario = outcome.scenario
            console.print(f"BROKEN: {scenario.stage}: {scenario.name}: {outcome.broken}", style="red")
    console.print(f"The figures are in {path}.")


if __name__ == "__main__":
    app()
