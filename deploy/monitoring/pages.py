"""Generates tables in pages: the alerts, the SLOs, and the node agent's metrics."""

from collections.abc import Callable, Iterator
from typing import Final

from deploy.monitoring.objectives import OBJECTIVES
from deploy.monitoring.rules import ALERTS
from extender.pages import metric_rows, replaced, table_head, table_row
from node_agent.metrics import METRICS


def _agents_metrics() -> Iterator[str]:
    yield from metric_rows(METRICS)


def _alerts() -> Iterator[str]:
    yield from table_head("alert", "severity", "after", "summary")
    for alert in ALERTS:
        link = f"[{alert.name}](../troubleshooting/runbooks/{alert.name}.md)"
        summary = alert.summary.replace("|", r"\|")  # a bare | ends the cell
        yield table_row(link, alert.severity, alert.lasts, summary)


def _objectives() -> Iterator[str]:
    yield from table_head("objective", "how many", "within", "metric")
    for each in OBJECTIVES:
        yield table_row(each.what, f"{each.share:.0%}", f"{each.seconds:g} s", f"`{each.metric}`")


_PARTS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "node_agent/metrics.py": _agents_metrics,
    "deploy/monitoring/alerts": _alerts,
    "deploy/monitoring/objectives.py": _objectives,
}
"""The source of each table, and the function that makes the table's lines."""

PAGES: Final = ("docs/reference/metrics.md",)


def renewed(name: str, page: str) -> str:
    """Returns the page with current tables. Raises ValueError if the page lacks the marks of a table."""
    assert name in PAGES
    for source, make in _PARTS.items():
        page = replaced(page, source, make())
    return page
