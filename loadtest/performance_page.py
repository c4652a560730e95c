"""`python -m loadtest.performance_page`: docs/performance.md's tables and plots, and README's figures.

They are made from build/bench.json, which is kept beside the plots, in docs/performance: a test fails
where pages or plots are not what these figures make. The text between the tables is the pages' own.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from deploy.local.layout import CHECKOUT
from loadtest.bench.held_to import BUDGETS, Measured, one, singly
from loadtest.bench.scenarios import Who
from loadtest.performance_plots import plots

Json = Mapping[str, Any]
Blocks = Mapping[str, Callable[[Json], str]]

PAGE: Final = CHECKOUT / "docs/performance.md"
README: Final = CHECKOUT / "README.md"
KEPT: Final = CHECKOUT / "docs/performance/bench.json"

_BEGIN: Final = "<!-- {} is made by `make performance-page`. -->\n"
_END: Final = "<!-- End of {}. -->\n"
_NOT_MEASURED: Final = "-"
_NODES: Final = (200, 1000, 5000)
_WORDS: Final = {each.key: each.words for each in BUDGETS}

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def main(
    figures: Annotated[Path, typer.Argument(help="What `make bench` has left.")] = CHECKOUT
    / "build/bench.json",
) -> None:
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(figures, KEPT)
    told = json.loads(KEPT.read_text())
    for page, blocks in PAGES.items():
        page.write_text(renewed(page.read_text(), blocks, told))
    for name, plot in plots(told).items():
        (KEPT.parent / name).write_bytes(plot)


def renewed(page: str, blocks: Blocks, told: Json) -> str:
    """The page with each block as the figures make it. Raises ValueError where it lacks a place."""
    for name, made in blocks.items():
        page = with_block(page, _BEGIN.format(name), _END.format(name), f"\n{made(told)}\n")
    return page


def with_block(page: str, begin: str, end: str, block: str) -> str:
    """The page with this between two lines of it. Raises ValueError where it lacks them."""
    before, begins, rest = page.partition(begin)
    _, ends, after = rest.partition(end)
    if not (begins and ends):
        raise ValueError(f"the page lacks {begin.strip()} or {end.strip()}")
    return before + begin + block + end + after


def _conditions(told: Json) -> str:
    at = told["conditions"]
    machine = f"{at['cpus']} CPUs ({at['processor']}), {at['memory_gb']} GB, Linux {at['kernel']}"
    lines = (
        f"- {at['begun'][:10]}, {at['minutes']:g} minutes, commit {at.get('commit') or 'not known'}.",
        f"- {machine}, Python {at['python']}, Kubernetes {at['kubernetes']}.",
        f"- {at['pods']:,} Pods at once; as many in three runs at {at['steady_pods_per_s']:g} a second.",
    )
    return "\n".join(lines) + "\n"


def _held_to(told: Json) -> str:
    rows = (
        (
            f"`{each['key']}`",
            _WORDS[each["key"]],
            _number(each["value"], 3),
            f"{'at least' if each['at_least'] else 'at most'} {each['limit']:,g}",
            each["word"],
        )
        for each in told["verdicts"]
    )
    return _table(("key", "what", "measured", "budget", ""), rows)


def _ratios(told: Json) -> str:
    ratios = ", ".join(f"{ratio:.2f}" for ratio in Measured(told["scenarios"], {}).ratios_to_noop())
    return f"`ratio_to_noop` is of medians; the rounds' own ratios are {ratios or _NOT_MEASURED}.\n"


def _summary(told: Json) -> str:
    rows, measured = [], Measured(told["scenarios"], {})
    for who in (Who.ALONE, Who.NOOP, Who.REAL):
        rates = [measured.figure(one(who, nodes), "burst", "pods_per_s", "median") for nodes in _NODES]
        idle = [measured.figure(singly(who), "idle_bound_ms", part) for part in ("p50", "p99")]
        rows.append((one(who, 200).name, *(_number(figure, 0) for figure in (*rates, *idle))))
    heads = ("200 Nodes: Pods/s", "1,000", "5,000", "1,000, one at a time: p50 ms", "p99")
    return _table(("kube-scheduler's extender", *heads), rows)


def _bursts(told: Json) -> str:
    columns = {
        "Pods/s": ("pods_per_s", 0),
        "created/s": ("created_per_s", 0),
        "p50 ms": ("bound_ms_p50", 0),
        "p95": ("bound_ms_p95", 0),
        "p99": ("bound_ms_p99", 0),
        "job start to bound, p50": ("start_bound_ms_p50", 0),
        "p99 ": ("start_bound_ms_p99", 0),
        "/filter p99": ("filter_ms_p99", 2),
    }
    return _by_stage(told, "burst", columns)


def _costs(told: Json) -> str:
    columns = {
        "extender CPU ms": ("extender_cpu_ms_per_pod", 2),
        "Slurm CPU ms": ("slurm_cpu_ms_per_pod", 2),
        "all CPU ms": ("cpu_ms_per_pod", 1),
        "REST calls": ("rest_calls_per_pod", 2),
        "REST bytes": ("rest_bytes_per_pod", 0),
        "API writes": ("api_writes_per_pod", 2),
        "its end: extender CPU ms": ("release_extender_cpu_ms_per_pod", 2),
        "REST calls ": ("release_rest_calls_per_pod", 2),
        "REST bytes ": ("release_rest_bytes_per_pod", 0),
    }
    return _by_stage(told, "burst", columns, {"extender's peak MB": _peak})


def _steady(told: Json) -> str:
    columns = {
        "p50 ms": ("bound_ms_p50", 1),
        "p95": ("bound_ms_p95", 1),
        "p99": ("bound_ms_p99", 1),
        "job start to bound, p50": ("start_bound_ms_p50", 1),
        "p99 ": ("start_bound_ms_p99", 1),
        "extender CPU ms": ("extender_cpu_ms_per_pod", 2),
        "/filter p99": ("filter_ms_p99", 2),
    }
    idle = {
        "one at a time, p50": lambda each: _number(each["idle_bound_ms"]["p50"], 1),
        "p99  ": lambda each: _number(each["idle_bound_ms"]["p99"], 1),
    }
    return _by_stage(told, "steady", columns, idle)


PAGES: Final[Mapping[Path, Blocks]] = {
    README: {"The table of a few figures": _summary},
    PAGE: {
        "The list of conditions": _conditions,
        "The table of what is held to": _held_to,
        "The ratio of each round": _ratios,
        "The table of bursts": _bursts,
        "The table of costs": _costs,
        "The table of steady loads": _steady,
    },
}


def _by_stage(
    told: Json,
    load: str,
    columns: Mapping[str, tuple[str, int]],
    more: Mapping[str, Callable[[Json], str]] | None = None,
) -> str:
    """A row for each scenario in which something of it was measured, under its stage. `columns` name
    metrics and their decimals."""
    rows, stage, more = list[Sequence[str]](), "", more or {}
    for each in told["scenarios"]:
        cells = [_spread(each[load].get(metric), decimals) for metric, decimals in columns.values()]
        cells += [tell(each) for tell in more.values()]
        if all(cell == _NOT_MEASURED for cell in cells) and not each["broken"]:
            continue
        if each["stage"] != stage:
            stage = each["stage"]
            rows.append((f"**{stage}**", *("" for _ in cells)))
        rows.append((each["name"] + (f" (broken: {each['broken']})" if each["broken"] else ""), *cells))
    return _table(("", *columns, *more), rows)


def _peak(each: Json) -> str:
    return _number(each["peak_rss_mb"] if each["burst"] else None, 0)


def _spread(spread: Json | None, decimals: int) -> str:
    """The median, and from what to what it was where that differs."""
    if spread is None:
        return _NOT_MEASURED
    middle, least, most = (_number(spread[kind], decimals) for kind in ("median", "min", "max"))
    return middle if least == most else f"{middle} ({least} to {most})"


def _number(value: float | None, decimals: int) -> str:
    return _NOT_MEASURED if value is None else f"{value:,.{decimals}f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---", *("---:" for _ in head[1:])], *rows)
    return "".join(f"| {' | '.join(cell.strip() for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    app()
