"""Reads the budgets, which are the limits of measured figures, and judges the figures. budgets.toml has
all budgets.

A budget has the same key as its figure in a command's JSON. The budget is either a number, which is the
maximum of the figure, or a table with these keys:

* `at_most` or `at_least`: the limit
* `words`: a text about the figure
* `warns`: true if an exceeded budget does not fail the run
* `today`: the figure when the budget was set
* `goal`: the figure to reach in the end
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

BUDGETS: Final = Path(__file__).parents[1] / "budgets.toml"

Json = Mapping[str, Any]


class NoBudgets(Exception):
    """Raised if the file has no budgets of this name. The message names the existing budgets."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a budget. `kept` is True, False, or None if nothing was measured."""

    key: str
    words: str
    value: float | None
    limit: float
    at_least: bool
    kept: bool | None
    warns: bool = False
    goal: float | None = None

    @classmethod
    def on(cls, key: str, budget: Json, value: float | None) -> Self:
        at_least = "at_least" in budget
        limit: float = budget["at_least" if at_least else "at_most"]
        kept = None if value is None else value >= limit if at_least else value <= limit
        words, warns = budget.get("words", ""), budget.get("warns", False)
        rounded, goal = value and round(value, 3), budget.get("goal")
        return cls(key, words, rounded, limit, at_least, kept, warns, goal)

    @property
    def word(self) -> str:
        short = "warning" if self.warns else "FALLS SHORT"
        return {True: "kept", False: short, None: "not measured"}[self.kept]

    def __str__(self) -> str:
        bound = f"at {'least' if self.at_least else 'most'} {self.limit:g}"
        goal = "" if self.goal is None else f"; goal {self.goal:g}"
        text = f"{self.word}: {self.key} {self.value} ({bound}{goal})"
        return f"{text}: {self.words}" if self.words else text


def budgets(name: str, path: Path = BUDGETS) -> Json:
    """Returns the budgets of a command, or of a part of a command. Raises NoBudgets."""
    tables = tomllib.loads(path.read_text())
    if name not in tables:
        raise NoBudgets(f"{path.name} has no budgets for {name}; it has {', '.join(tables)}")
    return dict(tables[name])


def judged(held_to: Json, figures: Json, within: str = "") -> list[Verdict]:
    """Returns one verdict for each budget, in the same order. `within` is a prefix of the keys."""
    verdicts = []
    for name, entry in held_to.items():
        key, found = within + name, figures.get(name)
        budget = entry if isinstance(entry, dict) else {"at_most": entry}
        if budget.keys() & {"at_most", "at_least"}:
            verdicts.append(Verdict.on(key, budget, found))
        else:
            verdicts += judged(budget, found or {}, f"{key} ")
    return verdicts


def passed(verdicts: Sequence[Verdict], *, partly: bool = False) -> bool:
    """Returns True if all budgets are kept. A budget that only warns does not count. If `partly` is
    True, a budget without a figure does not count either."""
    return all(each.kept or each.warns or (partly and each.kept is None) for each in verdicts)
