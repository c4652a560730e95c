"""The plots of docs/performance.md, as SVG."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element

import pygal
from pygal.style import CleanStyle

from loadtest.bench.scenarios import Who

# pygal's hook for plugins, which are not needed here, is of a kind that Python has given up: 3.12 passes
# it by, 3.11 warns of it at imports that follow.
sys.meta_path[:] = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]

Json = Mapping[str, Any]


def plots(told: Json) -> dict[str, bytes]:
    """Of what build/bench.json tells, by the names of their files."""
    return {name: plot(told) for name, plot in _PLOTS.items()}


def _speed(told: Json) -> bytes:
    chart = _bars("Pods a second, of a burst", "Pods/s")
    _by_nodes(chart, told, lambda each: _median(each, "burst", "pods_per_s"))
    return _drawn(chart)


def _latency(told: Json) -> bytes:
    at = told["conditions"]["steady_pods_per_s"]
    chart = _bars(f"Create to bound at {at:g} Pods a second, p99", "ms")
    _by_nodes(chart, told, lambda each: _median(each, "steady", "bound_ms_p99"))
    return _drawn(chart)


def _cpu(told: Json) -> bytes:
    chart = _bars("CPU of the whole cluster, of a burst", "ms a Pod")
    _by_nodes(chart, told, lambda each: _median(each, "burst", "cpu_ms_per_pod"))
    return _drawn(chart)


_PLOTS: Final[Mapping[str, Callable[[Json], bytes]]] = {
    "pods-per-second.svg": _speed,
    "create-to-bound.svg": _latency,
    "cpu-per-pod.svg": _cpu,
}


def _bars(title: str, unit: str) -> pygal.Bar:
    """The same figures are the same bytes: without scripts, the day or an identity made by chance."""
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
    return chart


def _without_script_and_comments(root: Element) -> Element:
    for parent in list(root.iter()):
        for child in list(parent):
            if not isinstance(child.tag, str) or child.tag.endswith("script"):
                parent.remove(child)
    return root


def _by_nodes(chart: pygal.Bar, told: Json, figure: Callable[[Json], float | None]) -> None:
    """A group of bars for each stage in which all ways are compared, a colour for each scenario."""
    noop = (each for each in told["scenarios"] if each["who"] == Who.NOOP)
    stages = dict.fromkeys(each["stage"] for each in noop if figure(each) is not None)
    chart.x_labels = list(stages)
    found = {
        (each["stage"], each["name"]): value
        for each in told["scenarios"]
        if each["stage"] in stages and (value := figure(each)) is not None
    }
    for name in dict.fromkeys(name for _, name in found):
        chart.add(name, [found.get((stage, name)) for stage in stages])


def _median(each: Json, load: str, metric: str) -> float | None:
    return (each[load].get(metric) or {}).get("median")


def _drawn(chart: pygal.Bar) -> bytes:
    return bytes(chart.render())
