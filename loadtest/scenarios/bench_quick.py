"""Whether the extender has lost speed, in less than three minutes: three clusters that work in turn, so
that what else the machine does in these minutes falls on all of them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from loadtest.harness.budgets import budgets, judged
from loadtest.harness.command import BUILD, Broken, command
from loadtest.harness.variants import Placer
from loadtest.report.figures import Outcome, at
from loadtest.scenarios.stage import Sizes, run_stage
from loadtest.scenarios.table import one

_VARIANTS: Final = {"alone": Placer.ALONE, "noop": Placer.NOOP, "ours": Placer.REAL}
_IDLE_PODS: Final = 30
_COLUMNS: Final = {
    "Pods/s": ("burst", "pods_per_s", "median"),
    **{f"burst p{part}, ms": ("burst", f"bound_ms_p{part}", "median") for part in (50, 95, 99)},
    **{f"one at a time p{part}": ("idle_bound_ms", f"p{part}") for part in (50, 95)},
    "CPU ms/Pod: extender": ("burst", "extender_cpu_ms_per_pod", "median"),
    "all": ("burst", "cpu_ms_per_pod", "median"),
}
_LAST_ROUND_ENDS_S: Final = 165.0

Json = Mapping[str, Any]


def bench_quick(
    *,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of each cluster.")] = 200,
    pods: Annotated[int, typer.Option(min=1, help="Pods of a burst.")] = 500,
    rounds: Annotated[int, typer.Option(min=1, help="Bursts of each variant, at most.")] = 3,
    figures: Annotated[Path, typer.Option(help="Where they go.")] = BUILD / "bench-quick.json",
) -> None:
    sizes = {"nodes": nodes, "bursts": rounds, "steadies": 0, "idle": _IDLE_PODS}
    scenarios = [replace(one(placer, 200), **sizes) for placer in _VARIANTS.values()]  # type: ignore[arg-type]
    with command(figures) as run:
        load = Sizes(pods, 0.0, _LAST_ROUND_ENDS_S)
        outcomes = run_stage(scenarios, load, run.directory, run.report)
        if broken := [each.broken for each in outcomes if each.broken]:
            raise Broken(broken[0])
        found = summary(dict(zip(_VARIANTS, outcomes, strict=True)))
        rows = {
            name: [at(each, *path) for path in _COLUMNS.values()]
            for name, each in found["variants"].items()
        }
        run.table(list(_COLUMNS), rows)
        run.conclude({**found, "nodes": nodes, "pods": pods}, judged(budgets("bench-quick"), found))


def summary(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """What build/bench-quick.json holds, from the outcomes of "alone", "noop" and "ours"."""
    variants = {name: outcome.as_json() for name, outcome in outcomes.items()}
    rates = {name: at(each, "burst", "pods_per_s", "median") or 0.0 for name, each in variants.items()}
    ours = variants["ours"]
    return {
        **{f"pods_per_s_{name}": rate for name, rate in rates.items()},
        "ratio_to_noop": round(rates["ours"] / rates["noop"], 3),
        "idle_bound_ms_p50": at(ours, "idle_bound_ms", "p50"),
        "extender_cpu_ms_per_pod": at(ours, "burst", "extender_cpu_ms_per_pod", "median"),
        "variants": variants,
    }
