"""What came of a run at scale: the sums behind its figures, and whether the budgets are kept."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from deploy.local.demo.findings import percentile
from loadtest.bench_restart import BUDGET_S as RESTART_BUDGET_S
from loadtest.bench_restart import Restart
from loadtest.figures import Verdict

RSS_BUDGET_MB: Final = 500.0
FILTER_P99_BUDGET_MS: Final = 5.0
HELD_BUDGET_MS: Final = 50.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Of times, in milliseconds."""

    count: int
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, ms: Sequence[float]) -> Self:
        """All 0 where there are none."""
        p50, p99, most = (round(percentile(ms, part) or 0.0, 2) for part in (50, 99, 100))
        return cls(len(ms), p50, p99, most)


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of a run, in which a stream of Pods was placed and /filter was asked."""

    seconds: float
    late_ms: Spread
    """How late the extender's event loop came to a timer, whatever held it up."""
    held_ms: Spread
    """That part of it in which the loop's own thread worked."""
    event_lag_ms: Spread
    """From a Pod's create call to its gate seen lifted: heard of, job asked for, granted, written."""
    filter_calls: int
    filter_ms_p99: float | None
    """By the extender's own histogram."""
    filter_caller_ms: Spread
    """From the call to the answer: with all that it waits for."""
    extender_cpu_percent: float
    rss_mb: float
    """The most that the process ever had, at the end of it."""


@dataclass(frozen=True, slots=True)
class Flap:
    """What one Node costs that goes away and comes back, less what the same time costs without."""

    flaps: int
    extender_cpu_ms: float
    rest_calls: float
    api_writes: float
    """On the Node itself, the extender's alone."""


@dataclass(frozen=True, slots=True)
class Start:
    """Of an extender that finds all of it there; seconds from the start of the process."""

    ready_s: float
    cpu_s: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class Scale:
    """A whole run."""

    nodes: int
    pods: int
    start: Start
    phases: Mapping[str, Phase]
    """steady; relist: while kube-apiserver comes back and everything is listed anew."""
    relist_s: float
    """From kube-apiserver serving again to the first new Pod's gate lifted: all is listed by then."""
    flaps: Mapping[str, Flap]
    told: Mapping[str, int]
    """What the Pods that wait say of it, by their condition's reason; "" where nobody has told them."""
    restart: Restart | None
    rss_mb: float
    """The most that the extender had at any time."""

    def verdicts(self) -> list[Verdict]:
        """Each budget, and whether it is kept."""
        found = [_at_most("MB at most", self.rss_mb, RSS_BUDGET_MB)]
        for name, phase in self.phases.items():
            p99 = phase.filter_ms_p99
            found.append(_at_most(f"ms, p99 of /filter, {name}", p99, FILTER_P99_BUDGET_MS))
            found.append(
                _at_most(f"ms, the event loop's longest hold, {name}", phase.held_ms.max, HELD_BUDGET_MS)
            )
        if self.restart is not None:
            told = f"s until {self.restart.pods} placeholders are found at a restart"
            found.append(_at_most(told, self.restart.ready_s, RESTART_BUDGET_S))
        return found

    @property
    def passes(self) -> bool:
        return all(verdict.kept or not verdict.binding for verdict in self.verdicts())

    def as_json(self) -> dict[str, Any]:
        """What build/scale.json holds."""
        return {
            f"rss_mb_{self.nodes}x{self.pods}": self.rss_mb,
            "rss_mb_budget": RSS_BUDGET_MB,
            **asdict(self),
        }

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n")


def _at_most(what: str, found: float | None, budget: float) -> Verdict:
    if found is None:
        return Verdict(f"{what}: nothing was measured", kept=False)
    return Verdict(f"{found:.1f} {what} (budget: {budget:g})", kept=found <= budget)
