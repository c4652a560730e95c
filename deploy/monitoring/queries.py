"""Parts of dashboards: rows, panels, and frequent queries."""

from typing import Final

from deploy.monitoring.panel import Dashboard, Panel, Query, Row

RATE: Final = "$__rate_interval"
"""Range for rates. Grafana replaces this variable by a suitable range."""
WEBHOOKS: Final = 'name=~".+[.]slurm-extender[.]io"'
"""Matcher that selects the extender's webhooks in kube-apiserver's metrics."""


def quantiles(metric: str, label: str = "") -> tuple[Query, ...]:
    """Returns the queries of a histogram's median and 99th percentile, for each value of a label."""
    by, legend = (f"le, {label}", f"{_legend(label)} ") if label else ("le", "")
    return tuple(
        Query(
            f"histogram_quantile({share}, sum by ({by}) (rate({metric}_bucket[{RATE}])))",
            f"{legend}p{100 * share:g}",
        )
        for share in (0.5, 0.99)
    )


def per_second(metric: str, *labels: str) -> Query:
    """Returns the query of a counter's rate, for each value of the labels."""
    return Query(f"sum by ({', '.join(labels)}) (rate({metric}[{RATE}]))", _legend(*labels))


def summed(metric: str, label: str) -> Query:
    """Returns the query of a gauge's sum over all targets, for each value of a label."""
    return Query(f"sum by ({label}) ({metric})", _legend(label))


def dashboard(name: str, title: str, words: str, *rows: Row) -> Dashboard:
    """Returns a page of rows."""
    return Dashboard(name, title, words, rows)


def row(title: str, *panels: Panel) -> Row:
    """Returns panels under one heading."""
    return Row(title, panels)


def panel(
    title: str, *queries: Query, unit: str = "short", words: str = "", stacked: bool = False
) -> Panel:
    """Returns a panel with lines over time."""
    return Panel(title, queries, unit, words, stacked)


def now(title: str, expr: str, *, unit: str = "short", red_from: float | None = None) -> Panel:
    """Returns a panel with one number."""
    return Panel(title, (Query(expr),), unit, is_now=True, red_from=red_from)


def _legend(*labels: str) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)
