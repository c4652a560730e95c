"""Rules of Prometheus as values, and the documents that they become."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from deploy.monitoring.releases import WHOSE, of_releases

RUNBOOKS: Final = "https://github.com/slurm-extender/slurm-extender/blob/main/docs/runbooks/"
"""Where the runbooks are; the chart's value monitoring.runbookUrl takes its place."""


class Severity(StrEnum):
    CRITICAL = "critical"
    """Somebody should look now: Pods do not start, or nobody keeps them apart from jobs."""
    WARNING = "warning"
    """Somebody should look today."""
    INFO = "info"
    """Nobody has to look: it says what other alerts cannot see."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule that fires, for each release by itself. Of its words `summary` is one line, which the
    release is added to, and `description` has what is to be known at once; both may use Prometheus'
    templates."""

    name: str
    expr: str
    lasts: str
    """For how long the expression must hold: "5m"; "0m": it fires at once."""
    severity: Severity
    summary: str
    description: str

    @property
    def _since(self) -> str:
        """Says when it began: whoever is called sees when the alert did."""
        return "" if self.lasts == "0m" else f" It was so for {self.lasts} before the alert began."

    def document(self) -> dict[str, Any]:
        """Returns it as it stands in a file of rules."""
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
    """A rule that records what an expression says, under a name: level:metric:operation."""

    name: str
    expr: str

    def document(self) -> dict[str, Any]:
        """Returns it as it stands in a file of rules."""
        return {"record": self.name, "expr": of_releases(self.expr)}


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that Prometheus evaluates one after the other."""

    name: str
    rules: tuple[Alert | Recording, ...]

    def document(self) -> dict[str, Any]:
        """Returns it as it stands in a file of rules, and in a PrometheusRule."""
        return {"name": self.name, "rules": [rule.document() for rule in self.rules]}


def labelled(expr: str, name: str, value: str) -> str:
    """Returns an expression whose series have one more label: which of several things it is."""
    return f'label_replace({expr}, "{name}", "{value}", "", "")'


def document(groups: Iterable[Group]) -> dict[str, Any]:
    """Returns a file of rules; the `spec` of a PrometheusRule is the same."""
    return {"groups": [group.document() for group in groups]}
