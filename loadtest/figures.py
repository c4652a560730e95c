"""What came of a run: the figures of each arm, their ratios, and whether the budgets are kept."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from deploy.local.demo.findings import percentile
from loadtest.meters import Reading

RATIO_BUDGET: Final = 0.5
"""The least that ours may reach of the no-op extender's Pods a second, in one run."""
IDLE_P50_BUDGET_MS: Final = 50.0
"""Only warns: a time alone says as much of the machine as of the program."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Many Pods, at once or at a steady rate. `seconds` is from the first create call to the last
    binding seen, `creating_s` to the last create call's answer; `spent` is what the cluster spent on it
    until all run, `released` what it spent afterwards until all are gone, and their jobs.
    Of each Pod there is the time from create call to binding and, where Slurm's log tells it, from the
    start of its job to the binding."""

    seconds: float
    creating_s: float
    bound_ms: Sequence[float]
    spent: Reading
    start_bound_ms: Sequence[float] = ()
    released: Reading | None = None

    @property
    def pods_per_s(self) -> float:
        return len(self.bound_ms) / self.seconds

    @property
    def extender_cpu_ms_per_pod(self) -> float:
        return self.spent.cpu_s.get("extender", 0.0) * 1000 / len(self.bound_ms)

    @property
    def cpu_ms_per_pod(self) -> float:
        return sum(self.spent.cpu_s.values()) * 1000 / len(self.bound_ms)


@dataclass(slots=True)
class ArmFigures:
    """Of one arm; grows with the run."""

    bursts: list[Burst] = field(default_factory=list)
    idle_ms: list[float] = field(default_factory=list)

    @property
    def pods_per_s(self) -> float:
        return median(burst.pods_per_s for burst in self.bursts)

    @property
    def extender_cpu_ms_per_pod(self) -> float:
        return median(burst.extender_cpu_ms_per_pod for burst in self.bursts)

    @property
    def cpu_ms_per_pod(self) -> float:
        """Of the whole cluster. Where CPU is what limits, this says most of how fast a burst can be."""
        return median(burst.cpu_ms_per_pod for burst in self.bursts)

    def idle(self, percent: float) -> float:
        return percentile(self.idle_ms, percent) or 0.0

    def burst_bound(self, percent: float) -> float:
        """Of create -> bound within the bursts, in ms: the median of the bursts' percentiles."""
        return median(percentile(burst.bound_ms, percent) or 0.0 for burst in self.bursts)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a budget is kept; one that is not `binding` only warns."""

    words: str
    _: KW_ONLY
    kept: bool
    binding: bool = True

    @property
    def word(self) -> str:
        if self.kept:
            return "kept"
        return "FALLS SHORT" if self.binding else "warning"


@dataclass(frozen=True, slots=True)
class Figures:
    """Of a whole run. Arms that are added beside these three are reported, and not judged."""

    nodes: int
    pods: int
    arms: Mapping[str, ArmFigures]

    @property
    def ratio_to_noop(self) -> float:
        return self.arms["ours"].pods_per_s / self.arms["noop"].pods_per_s

    def verdicts(self) -> list[Verdict]:
        """Each budget, and whether it is kept."""
        ratio, idle = self.ratio_to_noop, self.arms["ours"].idle(50)
        return [
            Verdict(
                f"{ratio:.2f} of the no-op extender's Pods/s (budget: at least {RATIO_BUDGET})",
                kept=ratio >= RATIO_BUDGET,
            ),
            Verdict(
                f"{idle:.1f} ms from create to bound, one Pod at a time"
                f" (budget: under {IDLE_P50_BUDGET_MS:.0f} on an otherwise idle machine)",
                kept=idle < IDLE_P50_BUDGET_MS,
                binding=False,
            ),
        ]

    @property
    def passes(self) -> bool:
        """Whether every budget is kept that a machine's load does not excuse."""
        return all(verdict.kept or not verdict.binding for verdict in self.verdicts())

    def as_json(self) -> dict[str, Any]:
        """What build/bench-quick.json holds."""
        ours = self.arms["ours"]
        return {
            **{f"pods_per_s_{name}": _rounded(arm.pods_per_s) for name, arm in self.arms.items()},
            "ratio_to_noop": round(self.ratio_to_noop, 3),
            "ratio_to_noop_budget": RATIO_BUDGET,
            "idle_bound_ms_p50": _rounded(ours.idle(50)),
            "idle_bound_ms_p50_budget": IDLE_P50_BUDGET_MS,
            "extender_cpu_ms_per_pod": round(ours.extender_cpu_ms_per_pod, 2),
            "nodes": self.nodes,
            "pods": self.pods,
            "arms": {name: _details(arm) for name, arm in self.arms.items()},
        }

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n")


def _details(arm: ArmFigures) -> dict[str, Any]:
    return {
        "pods_per_s": [_rounded(burst.pods_per_s) for burst in arm.bursts],
        "created_per_s": [_rounded(len(burst.bound_ms) / burst.creating_s) for burst in arm.bursts],
        "extender_cpu_ms_per_pod": round(arm.extender_cpu_ms_per_pod, 2),
        "cpu_ms_per_pod": round(arm.cpu_ms_per_pod, 2),
        **{f"burst_bound_ms_p{part}": _rounded(arm.burst_bound(part)) for part in (50, 95, 99)},
        **{f"idle_bound_ms_p{part}": _rounded(arm.idle(part)) for part in (50, 95, 99)},
    }


def _rounded(value: float) -> float:
    return round(value, 1)
