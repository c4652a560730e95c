"""Grafana dashboards as values, and their JSON for Grafana 10 and later."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from deploy.monitoring.releases import SOURCE, of_chosen, variables

_COLUMNS: Final = 24
_WIDE, _NARROW, _HIGH, _LOW = 8, 4, 8, 4
_TAG: Final = "slurm-extender"


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and the legend of the expression's lines. "{{state}}" is the value of a label."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel with the answer to a single question. The panel shows lines over time or, if `is_now`, the
    last value."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    """Unit of Grafana: s, bytes, ops, percentunit."""
    words: str = ""
    """Description for the reader of the panel."""
    stacked: bool = False
    is_now: bool = False
    red_from: float | None = None
    """Lowest value shown in red."""

    @property
    def size(self) -> tuple[int, int]:
        """Returns the width and height of the panel in Grafana's grid of 24 columns."""
        return (_NARROW, _LOW) if self.is_now else (_WIDE, _HIGH)

    def document(self, number: int, x: int, y: int) -> dict[str, Any]:
        """Returns the panel's JSON. `x` and `y` are the panel's position in Grafana's grid."""
        width, height = self.size
        return {
            "id": number,
            "type": "stat" if self.is_now else "timeseries",
            "title": self.title,
            "description": self.words,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": width, "h": height},
            "fieldConfig": {"defaults": self._field(), "overrides": []},
            "options": self._options(),
            "targets": [
                {
                    "refId": chr(ord("A") + index),
                    "datasource": SOURCE,
                    "expr": of_chosen(query.expr),
                    "legendFormat": query.legend or "__auto",
                    "instant": self.is_now,
                    "range": not self.is_now,
                }
                for index, query in enumerate(self.queries)
            ],
        }

    def _field(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
        if self.red_from is not None:
            steps.append({"color": "red", "value": self.red_from})
        field: dict[str, Any] = {"unit": self.unit, "thresholds": {"mode": "absolute", "steps": steps}}
        if not self.is_now:
            mode = "normal" if self.stacked else "none"
            field["min"] = 0
            field["custom"] = {"fillOpacity": 20 if self.stacked else 0, "stacking": {"mode": mode}}
        return field

    def _options(self) -> dict[str, Any]:
        if self.is_now:
            return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of rows."""

    name: str
    """Part of the file's name and of the uid: "queue"."""
    title: str
    words: str
    rows: tuple[Row, ...]

    @property
    def expressions(self) -> Iterator[str]:
        """Yields every expression of the dashboard, with matchers for the releases that the dashboard's
        variables select."""
        for row in self.rows:
            for panel in row.panels:
                yield from (of_chosen(query.expr) for query in panel.queries)

    def document(self) -> dict[str, Any]:
        """Returns the dashboard's JSON for Grafana's import."""
        return {
            "uid": f"slurm-extender-{self.name}",
            "title": f"slurm-extender / {self.title}",
            "description": self.words,
            "tags": [_TAG],
            "schemaVersion": 39,
            "version": 1,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "timezone": "",
            "templating": {"list": [_datasource(), *variables()]},
            "annotations": {"list": []},
            "links": [
                {
                    "type": "dashboards",
                    "title": "slurm-extender",
                    "tags": [_TAG],
                    "asDropdown": True,
                    "keepTime": True,
                }
            ],
            "panels": list(_placed(self.rows)),
        }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _placed(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yields the panels with their positions: from left to right, below the heading of their row."""
    number, y = 1, 0
    for row in rows:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
            "panels": [],
        }
        x, y, number = 0, y + 1, number + 1
        for panel, after in pairwise((*row.panels, None)):
            assert panel is not None  # only the last `after` is None
            width, height = panel.size
            yield panel.document(number, x, y)
            number, x = number + 1, x + width
            if after is None or x + after.size[0] > _COLUMNS or after.size[1] != height:
                x, y = 0, y + height
