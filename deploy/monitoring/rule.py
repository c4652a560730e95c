"""Prometheus rules as values, and their format in a rules file."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from deploy.monitoring.releases import WHOSE, of_releases

RUNBOOKS: Final = (
    "https://github.com/slurm-extender/slurm-extender/blob/main/docs/troubleshooting/runbooks/"
)
"""URL of the runbooks. The chart replaces the URL by its value monitoring.runbookUrl."""


class Severity(StrEnum):
    CRITICAL = "critical"
    """A person must act now, because Pods do not start, or Pods and jobs are not kept apart."""
    WARNING = "warning"
    """A person must act today."""
    INFO = "info"
    """No action is necessary at once. The alert reports that other alerts cannot fire, because their
    metrics are missing."""


@dataclass(frozen=True, slots=True)
class Alert:
    """Rule that fires for each release separately. `summary` is a single line without the release, and
    `document` appends the release. `description` has the facts for the first minute. Both texts may
    contain templates of Prometheus."""

    name: str
    expr: str
    lasts: str
    """Time for which the expression must hold before the alert fires: "5m". With "0m", the alert fires
    at once."""
    severity: Severity
    summary: str
    description: str

    @property
    def _since(self) -> str:
        """Returns a sentence with the start of the alert's cause. The alert itself has only the time at
        which the alert began to fire."""
        return "" if self.lasts == "0m" else f" The cause began {self.lasts} before the alert."

    def document(self) -> dict[str, Any]:
        """Returns the rule in the format of a rules file."""
        return {
            "alert": self.name,
            "expr": of_releases(self.expr),
            "for": self.lasts,
            "labels": {"severity": self.severity.value},
            "annotations": {
                "summary": self.summary + WHOSE,
                "description": self.description + self._since,
                "runbook_url": f"{RUNBOOKS}{self.name}.md",
            },
        }


@dataclass(frozen=True, slots=True)
class Recording:
    """Rule that records the value of an expression under a name (level:metric:operation)."""

    name: str
    expr: str

    def document(self) -> dict[str, Any]:
        """Returns the rule in the format of a rules file."""
        return {"record": self.name, "expr": of_releases(self.expr)}


@dataclass(frozen=True, slots=True)
class Group:
    """Rules in a fixed order: Prometheus evaluates the rules one after the other."""

    name: str
    rules: tuple[Alert | Recording, ...]

    def document(self) -> dict[str, Any]:
        """Returns the group in the format of a rules file and of a PrometheusRule."""
        return {"name": self.name, "rules": [rule.document() for rule in self.rules]}


def labelled(expr: str, name: str, value: str) -> str:
    """Returns the expression with another label on the series. The label distinguishes the causes of an
    alert."""
    return f'label_replace({expr}, "{name}", "{value}", "", "")'


def document(groups: Iterable[Group]) -> dict[str, Any]:
    """Returns the content of a rules file. The `spec` of a PrometheusRule has the same content."""
    return {"groups": [group.document() for group in groups]}
