"""Writes the tables and plots of docs/reference/performance.md, scale.md and sizing.md, from
the figures of `bench`, `load` and `bench-scale` in build.

build/bench.json and build/load/load.json are kept beside the plots, in docs/reference/performance. A
test fails if pages or plots differ from these figures. A table stands between two marks of its page, and
comes from the page's template in this folder.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Element

import pygal
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pygal.style import CleanStyle

from deploy.local.layout import CHECKOUT
from loadtest.harness.budgets import Json, budgets
from loadtest.harness.command import BUILD
from loadtest.harness.table import one, singly
from loadtest.harness.variants import Placer
from loadtest.report.figures import at, found, ratios_to_noop

# Removes pygal's hook for plugins, because plugins are not needed here. The hook uses an interface that
# Python has removed. Python 3.12 ignores the hook, and Python 3.11 warns at later imports.
sys.meta_path[:] = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]

PAGE: Final = CHECKOUT / "docs/reference/performance.md"
SIZING: Final = CHECKOUT / "docs/reference/sizing.md"
SCALE: Final = CHECKOUT / "docs/reference/scale.md"
_KEPT: Final = CHECKOUT / "docs/reference/performance"
_MADE_FROM: Final = (BUILD / "bench.json", BUILD / "load/load.json")

_MARKS: Final = re.compile(
    r"<!-- (?P<name>[^\n]+) is made by `make performance-page`\. -->\n.*?<!-- End of (?P=name)\. -->\n",
    re.DOTALL,
)
_NOT_MEASURED: Final = "-"


def performance_page() -> None:
    for figures in _MADE_FROM:
        if figures.exists():
            shutil.copyfile(figures, _KEPT / figures.name)
    results = kept()
    for page in (PAGE, SIZING):
        page.write_text(renewed(page, results))
    for name, plot in plots(results).items():
        (_KEPT / name).write_bytes(plot)
    if (scale := BUILD / "scale.json").exists():
        SCALE.write_text(renewed(SCALE, json.loads(scale.read_text())))


def kept(folder: Path = _KEPT) -> Json:
    """Returns the figures of `bench`, and under "load" the figures of `load`, if there are any."""
    load = folder / "load.json"
    found = json.loads(load.read_text()) if load.exists() else {}
    return {**json.loads((folder / "bench.json").read_text()), "load": found}


def renewed(path: Path, results: Json, page: str = "") -> str:
    """Returns the page with new generated blocks, which are made from these figures. Raises ValueError
    if the page has no place for a block."""
    made = _TEMPLATES.get_template(f"{path.name}.j2").render(results)
    left = {marks["name"]: marks[0] for marks in _MARKS.finditer(made)}
    page = _MARKS.sub(lambda marks: left.pop(marks["name"]), page or path.read_text())
    if left:
        raise ValueError(f"{path.name} lacks a place for: {', '.join(left)}")
    return page


def _measured(
    scenarios: Sequence[Json], columns: Sequence[Sequence[Any]]
) -> Iterator[tuple[Json, list[str]]]:
    """Yields each measured or broken scenario, with the texts of its cells. `columns` has the heading,
    the path and the number of decimals of each column."""
    for each in scenarios:
        cells = [_cell(at(each, path), decimals) for _, path, decimals in columns]
        if each["broken"] or any(cell != _NOT_MEASURED for cell in cells):
            yield each, cells


def _cell(value: Any, decimals: int) -> str:
    """Returns the text of a cell. For a spread, the text has the median, and the range if minimum and
    maximum differ."""
    if not isinstance(value, dict):
        return _NOT_MEASURED if value is None else f"{value:,.{decimals}f}"
    middle, least, most = (_cell(value[kind], decimals) for kind in ("median", "min", "max"))
    return middle if least == most else f"{middle} ({least} to {most})"


def plots(results: Json) -> dict[str, bytes]:
    """Returns the plots of the figures in build/bench.json, by file name."""
    at_pace = f"Create to bound at {results['conditions']['steady_pods_per_s']:g} Pods a second, p99"
    cpu = "CPU of the whole cluster, of a burst"
    return {
        "pods-per-second.svg": _bars(results, "Pods a second, of a burst", "Pods/s", "burst.pods_per_s"),
        "create-to-bound.svg": _bars(results, at_pace, "ms", "steady.bound_ms_p99"),
        "cpu-per-pod.svg": _bars(results, cpu, "ms a Pod", "burst.cpu_ms_per_pod"),
    }


def _bars(results: Json, title: str, unit: str, metric: str) -> bytes:
    """Draws bars for each stage that has a scenario with the no-op extender, so only stages that compare
    placers. The plot has no scripts and no dates, so the same figures give the same bytes."""
    chart = pygal.Bar(
        title=title,
        y_title=unit,
        js=[],
        style=CleanStyle,
        width=900,
        height=420,
        legend_at_bottom=True,
        print_values=True,
        value_formatter=lambda value: f"{value:.0f}",
    )
    chart.uuid = "plot"
    chart.add_xml_filter(_without_script_and_comments)
    measured = [each for each in results["scenarios"] if at(each, f"{metric}.median") is not None]
    stages = dict.fromkeys(each["stage"] for each in measured if each["placer"] == Placer.NOOP)
    chart.x_labels = list(stages)
    shown = [each for each in measured if each["stage"] in stages]
    medians = {(each["stage"], each["name"]): at(each, f"{metric}.median") for each in shown}
    for name in dict.fromkeys(each["name"] for each in shown):
        chart.add(name, [medians.get((stage, name)) for stage in stages])
    return bytes(chart.render())


def _without_script_and_comments(root: Element) -> Element:
    for parent in list(root.iter()):
        for child in list(parent):
            if not isinstance(child.tag, str) or child.tag.endswith("script"):
                parent.remove(child)
    return root


_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701 -- Markdown
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["cell"] = _cell
_TEMPLATES.globals |= {
    "budgets": budgets,
    "measured": _measured,
    "ratios_to_noop": ratios_to_noop,
    "one": lambda scenarios, placer, nodes, path: found(scenarios, one(placer, nodes, path=path)),
    "singly": lambda scenarios, placer, path: found(scenarios, singly(placer, path)),
    "figure": at,
}
