"""The plots of docs/performance.md, as SVG."""

import sys
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element

import pygal
from pygal.style import CleanStyle

from loadtest.harness.variants import Placer
from loadtest.report.figures import at

# pygal's hook for plugins, which are not needed here, is of a kind that Python has given up: 3.12 passes
# it by, 3.11 warns of it at imports that follow.
sys.meta_path[:] = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]

Json = Mapping[str, Any]


def plots(told: Json) -> dict[str, bytes]:
    """Of what build/bench.json tells, by the names of their files."""
    rate = f"{told['conditions']['steady_pods_per_s']:g} Pods a second"
    return {
        "pods-per-second.svg": _bars(told, "Pods a second, of a burst", "Pods/s", "burst.pods_per_s"),
        "create-to-bound.svg": _bars(
            told, f"Create to bound at {rate}, p99", "ms", "steady.bound_ms_p99"
        ),
        "cpu-per-pod.svg": _bars(
            told, "CPU of the whole cluster, of a burst", "ms a Pod", "burst.cpu_ms_per_pod"
        ),
    }


def _bars(told: Json, title: str, unit: str, metric: str) -> bytes:
    """A group of bars for each stage in which all ways are compared, a colour for each scenario. The
    same figures are the same bytes: without scripts, the day or an identity made by chance."""
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
    medians = [(each, at(each, f"{metric}.median")) for each in told["scenarios"]]
    noop = (each for each, value in medians if each["placer"] == Placer.NOOP and value is not None)
    stages = dict.fromkeys(each["stage"] for each in noop)
    chart.x_labels = list(stages)
    found = {
        (each["stage"], each["name"]): value
        for each, value in medians
        if each["stage"] in stages and value is not None
    }
    for name in dict.fromkeys(name for _, name in found):
        chart.add(name, [found.get((stage, name)) for stage in stages])
    return bytes(chart.render())


def _without_script_and_comments(root: Element) -> Element:
    for parent in list(root.iter()):
        for child in list(parent):
            if not isinstance(child.tag, str) or child.tag.endswith("script"):
                parent.remove(child)
    return root
