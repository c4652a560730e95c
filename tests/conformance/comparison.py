"""Compares the outcome of each spec without the extender and with the extender."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SIG = "[sig-scheduling]"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a spec. `state` is the state in Ginkgo's report, such as passed, failed, skipped or
    timedout. `words` is the reason if the spec did not pass."""

    state: str
    seconds: float = 0.0
    words: str = ""

    @property
    def passed(self) -> bool:
        return self.state == "passed"


_NOT_RUN = Outcome("not run")

Outcomes = Mapping[str, Outcome]
"""Outcomes by the full name of the spec."""


def outcomes(report: Iterable[Mapping[str, Any]]) -> dict[str, Outcome]:
    """Returns the outcomes of the specs of SIG Scheduling, from a report of Ginkgo
    (-ginkgo.json-report)."""
    return {
        name: _outcome(spec)
        for suite in report
        for spec in suite["SpecReports"] or ()
        if spec["LeafNodeType"] == "It" and SIG in (name := _name(spec))
    }


def _name(spec: Mapping[str, Any]) -> str:
    return " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]])


def _outcome(spec: Mapping[str, Any]) -> Outcome:
    words = (spec.get("Failure") or {}).get("Message") or ""
    return Outcome(spec["State"], round(spec["RunTime"] / 1e9, 1), words)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcomes of both runs. `skipped` has, by name, the reason for each skipped spec."""

    without: Outcomes
    with_extender: Outcomes
    skipped: Mapping[str, str]

    @property
    def broken(self) -> list[str]:
        """Returns the specs that pass without the extender, but not with the extender."""
        passing = (name for name, outcome in self.without.items() if outcome.passed)
        return [name for name in passing if not self.with_extender.get(name, _NOT_RUN).passed]

    @property
    def failed(self) -> bool:
        """Returns True if a spec is broken, or if no spec passes without the extender. Such runs would
        prove nothing."""
        return bool(self.broken) or not any(each.passed for each in self.without.values())

    def as_json(self) -> dict[str, Any]:
        return {"broken": self.broken, "specs": list(self._specs())}

    def _specs(self) -> Iterator[dict[str, Any]]:
        for name in sorted({*self.without, *self.with_extender}):
            runs = (self.without.get(name, _NOT_RUN), self.with_extender.get(name, _NOT_RUN))
            words = self.skipped.get(name) or next((run.words for run in runs if run.words), "")
            without, with_extender = runs
            yield {
                "spec": name,
                "without": without.state,
                "with": with_extender.state,
                "seconds": [run.seconds for run in runs],
                "words": words,
            }
