"""`python -m loadtest.scale_page PAGE`: puts the figures of build/scale.json into docs/scale.md.

They stand between two marks; everything else on the page is people's.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from deploy.local.layout import CHECKOUT
from loadtest.performance_page import with_block

FIGURES: Final = CHECKOUT / "build/scale.json"
_BEGIN: Final = "<!-- figures -->\n"
_END: Final = "<!-- end of figures -->\n"


def with_figures(page: str, told: dict[str, Any]) -> str:
    """The page with these figures instead of those that it had. Raises ValueError without the marks."""
    return with_block(page, _BEGIN, _END, "\n".join(_tables(told)) + "\n")


def _tables(told: dict[str, Any]) -> Iterator[str]:
    nodes, pods = told["nodes"], told["pods"]
    yield f"| {nodes:,} Nodes, {pods:,} Pods that wait | |"
    yield "|---|---|"
    most = told[f"rss_mb_{nodes}x{pods}"]
    yield f"| memory, at most (RSS) | {most:.0f} MB (budget: {told['rss_mb_budget']:.0f}) |"
    start = told["start"]
    yield (
        f"| ready again after a restart | {start['ready_s']:.1f} s, {start['cpu_s']:.1f} s of CPU,"
        f" {start['rss_mb']:.0f} MB |"
    )
    yield f"| a new Pod placed again, once kube-apiserver is back | {told['relist_s']:.1f} s |"
    if restart := told["restart"]:
        yield (
            f"| ready with {restart['pods']:,} placeholders | {restart['ready_s']:.1f} s;"
            f" a new Pod is bound after {restart['placed_s']:.1f} s |"
        )
    yield ""
    yield "| milliseconds | " + " | ".join(told["phases"]) + " |"
    yield "|---|" + "---|" * len(told["phases"])
    phases = told["phases"].values()
    rows: Mapping[str, Callable[[dict[str, Any]], str]] = {
        "event loop, late to a timer (p99, most)": lambda p: _pair(p["late_ms"], "p99", "max"),
        "event loop, held by its own work (p99, most)": lambda p: _pair(p["held_ms"], "p99", "max"),
        "Pod created to its gate lifted (p50, p99)": lambda p: _pair(p["event_lag_ms"], "p50", "p99"),
        "/filter p99, own histogram": lambda p: f"{p['filter_ms_p99']:.1f}",
        "/filter as its caller sees it (p50, p99)": lambda p: _pair(p["filter_caller_ms"], "p50", "p99"),
    }
    for what, cell in rows.items():
        yield f"| {what} | " + " | ".join(cell(phase) for phase in phases) + " |"
    yield ""
    yield "| a Node goes and comes back, each time | CPU | calls of slurmrestd | writes on the Node |"
    yield "|---|---|---|---|"
    for how, flap in told["flaps"].items():
        cells = f"{flap['extender_cpu_ms']:.0f} ms | {flap['rest_calls']:.1f} | {flap['api_writes']:.1f}"
        yield f"| {how} | {cells} |"


def _pair(spread: dict[str, float], first: str, second: str) -> str:
    return f"{spread[first]:.1f}, {spread[second]:.1f}"


def main() -> None:
    page = Path(sys.argv[1])
    page.write_text(with_figures(page.read_text(), json.loads(FIGURES.read_text())))


if __name__ == "__main__":
    main()
