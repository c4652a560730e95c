"""Measures the speed of Pods from creation to binding, and the costs. Measures the same with other
placers, whose figures are the limits for the extender. `bench` runs all scenarios of table.toml.
`bench_quick` runs only a few quick scenarios."""

import itertools
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from operator import attrgetter
from pathlib import Path
from statistics import harmonic_mean
from typing import Annotated, Any, Final

import typer

from loadtest.harness.budgets import budgets, judged
from loadtest.harness.command import BUILD, Broken, command
from loadtest.harness.conditions import conditions
from loadtest.harness.table import PODS, SCENARIOS, STEADY_PODS_PER_S, Owner, Scenario
from loadtest.harness.variants import Placer
from loadtest.report.figures import Outcome, at, key_figures
from loadtest.scenarios.stage import Sizes, run_stage

_OF_THIS_RUN_S: Final = 600.0

_VARIANTS: Final = {
    "alone": (Placer.ALONE, Owner.TOKEN),
    "noop": (Placer.NOOP, Owner.TOKEN),
    "mapped": (Placer.REAL, Owner.MAPPED),
    "ours": (Placer.REAL, Owner.TOKEN),
}
_COUNTED: Final = tuple(
    itertools.product(("ours", "mapped"), ("api_writes_per_pod", "rest_calls_per_pod"))
)
_IDLE_PODS: Final = 30
_COLUMNS: Final = {
    "Pods/s": "burst.pods_per_s.median",
    **{f"burst p{part}, ms": f"burst.bound_ms_p{part}.median" for part in (50, 95, 99)},
    **{f"one at a time p{part}": f"idle_bound_ms.p{part}" for part in (50, 95)},
    "CPU ms/Pod: extender": "burst.extender_cpu_ms_per_pod.median",
    "all": "burst.cpu_ms_per_pod.median",
}
_LAST_ROUND_ENDS_S: Final = 330.0


def bench(
    *,
    only: Annotated[list[str], typer.Option(help="Part of the name of stages or scenarios.")] = [],  # noqa: B006
    pods: Annotated[int, typer.Option(min=1, help="Pods of a burst, and of all steady loads.")] = PODS,
    figures: Annotated[Path, typer.Option(help="File for the figures.")] = BUILD / "bench.json",
) -> None:
    """Measure the time of Pods from creation to binding, and the costs, for all scenarios of table.toml.
    Other placers are measured in the same way, as limits for the extender. Takes an hour on two
    cores."""
    scenarios = chosen(SCENARIOS, only)
    if not scenarios:
        raise typer.BadParameter("no stage and no scenario of table.toml matches")
    as_listed = pods == PODS
    with command(figures) as run:
        measured_at = {**conditions(), "pods": pods, "steady_pods_per_s": STEADY_PODS_PER_S}
        outcomes = list[Outcome]()
        scale = just_measured(BUILD / "scale.json")
        for stage, those in itertools.groupby(scenarios, attrgetter("stage")):
            run.report(f"{stage}:")
            directory = run.directory / str(len(outcomes))
            outcomes += run_stage([*those], Sizes(pods, STEADY_PODS_PER_S), directory, run.report)
            broken = [outcome for outcome in outcomes if outcome.broken]
            run.broken = bool(broken)
            measured_at["minutes"] = round(run.report.elapsed_s / 60, 1)
            entries = [outcome.as_json() for outcome in outcomes]
            verdicts = judged(budgets("bench"), key_figures(entries if as_listed else [], scale))
            key = {each.key: each.value for each in verdicts}
            measured = {**key, "conditions": measured_at, "scenarios": entries}
            run.write(measured, verdicts)  # keeps the figures even if the next stage fails
        for outcome in broken:
            what = f"{outcome.scenario.stage}: {outcome.scenario.name}: {outcome.broken}"
            run.console.print(f"BROKEN: {what}", style="red")
        run.conclude(measured, verdicts, partly=bool(only) or not as_listed)


def bench_quick(
    *,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of each cluster.")] = 200,
    pods: Annotated[int, typer.Option(min=1, help="Pods of a burst.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="Bursts of each variant, at most.")] = 12,
    figures: Annotated[Path, typer.Option(help="File for the figures.")] = BUILD / "bench-quick.json",
) -> None:
    """Check in about five minutes whether the extender has lost speed. Four clusters take turns
    with small bursts, so that other work of the machine slows all four clusters."""
    usual = partial(Scenario, "quick", nodes=nodes, bursts=rounds, steadies=0, idle=_IDLE_PODS)
    scenarios = [usual(n, placer=placer, owner=owner) for n, (placer, owner) in _VARIANTS.items()]
    with command(figures) as run:
        load = Sizes(pods, 0.0, _LAST_ROUND_ENDS_S)
        outcomes = run_stage(scenarios, load, run.directory, run.report)
        if broken := [each.broken for each in outcomes if each.broken]:
            raise Broken(broken[0])
        found = summary(dict(zip(_VARIANTS, outcomes, strict=True)))
        variants = found["variants"].items()
        rows = {name: [at(each, path) for path in _COLUMNS.values()] for name, each in variants}
        run.table(list(_COLUMNS), rows)
        run.conclude({**found, "nodes": nodes, "pods": pods}, judged(budgets("bench-quick"), found))


def summary(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Returns the content of build/bench-quick.json, from the outcomes of "alone", "noop", "mapped"
    and "ours"."""
    variants = {name: outcome.as_json() for name, outcome in outcomes.items()}
    rates = {name: at(each, "burst.pods_per_s.median") or 0.0 for name, each in variants.items()}
    ours = variants["ours"]
    return {
        **{f"pods_per_s_{name}": rate for name, rate in rates.items()},
        "ratio_to_noop": _ratio(ours, variants["noop"]),
        "ratio_mapped": _ratio(variants["mapped"], ours),
        **{f"{what}_{name}": at(variants[name], f"burst.{what}.median") for name, what in _COUNTED},
        "idle_bound_ms_p50": at(ours, "idle_bound_ms.p50"),
        "idle_bound_ms_p50_mapped": at(variants["mapped"], "idle_bound_ms.p50"),
        "extender_cpu_ms_per_pod": at(ours, "burst.extender_cpu_ms_per_pod.median"),
        "variants": variants,
    }


def _ratio(figures: Mapping[str, Any], to: Mapping[str, Any]) -> float:
    """Returns the Pods per second of `figures`, divided by the Pods per second of `to`. Counts all
    bursts of a side together, because the speeds of single bursts differ by half."""
    mine, theirs = (harmonic_mean(at(each, "burst.pods_per_s.each")) for each in (figures, to))
    ratio: float = mine / theirs
    return round(ratio, 3)


def chosen(scenarios: Sequence[Scenario], only: Sequence[str]) -> list[Scenario]:
    """Returns the scenarios whose stage or name contains one of the texts `only`. Without texts, returns
    all scenarios."""
    wanted = only or [""]
    return [each for each in scenarios if any(part in f"{each.stage}\n{each.name}" for part in wanted)]


def just_measured(path: Path) -> dict[str, Any]:
    """Returns the figures of bench-scale, which `make bench` runs just before `bench`. Returns {} if the
    file is older than _OF_THIS_RUN_S."""
    age_s = time.time() - path.stat().st_mtime if path.exists() else inf
    return dict(json.loads(path.read_text())) if age_s < _OF_THIS_RUN_S else {}
