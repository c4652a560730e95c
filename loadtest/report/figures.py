"""The outcome of each scenario, the form of the outcome in build/bench.json, and the key figures."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from statistics import median
from typing import Any

from deploy.local.demo.findings import percentile
from loadtest.harness.bursts import Burst
from loadtest.harness.meters import Counts, MeterReading
from loadtest.harness.table import Scenario, one, singly
from loadtest.harness.variants import Placer

Json = dict[str, Any]


@dataclass(slots=True)
class Outcome:
    """The outcome of one scenario, filled during the run. `broken` is the error that ended the scenario.
    Figures from before the error are kept."""

    scenario: Scenario
    bursts: list[Burst] = field(default_factory=list)
    steadies: list[Burst] = field(default_factory=list)
    idle_ms: list[float] = field(default_factory=list)
    peak_rss_mb: float | None = None
    """Peak memory of the extender."""
    broken: str = ""

    def as_json(self) -> Json:
        idle = {f"p{part}": rounded(of_enough(self.idle_ms, part)) for part in (50, 95, 99)}
        return {
            **asdict(self.scenario),
            "broken": self.broken or None,
            "burst": figures(self.bursts),
            "steady": figures(self.steadies),
            "idle_bound_ms": {"pods": len(self.idle_ms), **idle},
            "peak_rss_mb": rounded(self.peak_rss_mb),
            "cpu_ms_per_pod_by_component": self._by_kind(lambda spent: spent.cpu_s, 1000),
            "rest_calls_per_pod_by_call": self._by_kind(lambda spent: spent.rest_calls),
            "rest_bytes_per_pod_by_call": self._by_kind(lambda spent: spent.rest_bytes),
            "api_writes_per_pod_by_kind": self._by_kind(lambda spent: spent.api_writes),
        }

    def _by_kind(self, counts_of: Callable[[MeterReading], Counts], times: int = 1) -> Json:
        """Returns the counts of each kind, divided by the number of Pods of all bursts together."""
        total = Counter[str]()
        for burst in self.bursts:
            total.update(counts_of(burst.spent))
        pods = sum(len(burst.bound_ms) for burst in self.bursts)
        return {kind: rounded(count * times / pods) for kind, count in sorted(total.items()) if count}


def of_enough(values: Sequence[float], percent: int) -> float | None:
    """Returns a percentile. Returns None if there are so few values that no value is beyond the
    percentile. The percentile would then only be the maximum."""
    return percentile(values, percent) if len(values) * (100 - percent) >= 100 else None


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns the spread of times in milliseconds. If there are no times, all values are 0."""
    parts = {"p50": 50, "p99": 99, "max": 100}
    found = {name: round(percentile(values, part) or 0.0, 2) for name, part in parts.items()}
    return {"count": len(values), **found}


def figures(bursts: Sequence[Burst]) -> Json:
    """For each measured metric, returns the median, the minimum, the maximum, and the value of each
    burst."""
    tables, found = [_metrics(burst) for burst in bursts], Json()
    for name in tables[0] if tables else ():
        values = [value for table in tables if (value := table[name]) is not None]
        if values:
            numbers = {"median": median(values), "min": min(values), "max": max(values)}
            summary = {kind: rounded(number) for kind, number in numbers.items()}
            found[name] = {**summary, "each": [rounded(value) for value in values]}
    return found


def _metrics(burst: Burst) -> dict[str, float | None]:
    """Returns the metrics of a burst or of a steady load. None means not measured."""
    pods, spent = len(burst.bound_ms), burst.spent
    released = _costs(burst.released or MeterReading({}), pods)
    return {
        "pods_per_s": burst.pods_per_s,
        "created_per_s": pods / burst.creating_s,
        **{f"bound_ms_p{part}": percentile(burst.bound_ms, part) for part in (50, 95, 99)},
        "start_bound_pods": len(burst.start_bound_ms) or None,
        **{f"start_bound_ms_p{part}": percentile(burst.start_bound_ms, part) for part in (50, 95, 99)},
        **_costs(spent, pods),
        "slurm_cpu_ms_per_pod": (spent.cpu_ms("slurmctld") + spent.cpu_ms("slurmrestd")) / pods,
        "cpu_ms_per_pod": burst.cpu_ms_per_pod,
        "rest_bytes_for_pods": spent.rest_bytes_for_pods / pods if spent.rest_bytes else None,
        **{f"release_{name}": value for name, value in released.items()},
        "filter_ms_p99": spent.filter_s.percentile_ms(99),
    }


def _costs(reading: MeterReading, pods: int) -> dict[str, float | None]:
    found = {"extender_cpu_ms_per_pod": reading.cpu_ms("extender") / pods or None}
    for kind in ("rest_calls", "rest_bytes", "api_writes"):
        counts: Counts = getattr(reading, kind)
        found[f"{kind}_per_pod"] = sum(counts.values()) / pods if counts else None
    return found


def rounded(value: float | None) -> float | None:
    """Rounds to a hundredth."""
    return None if value is None else round(value, 2)


def key_figures(scenarios: Sequence[Json], scale: Json) -> dict[str, float | None]:
    """Returns the key figures by their names in budgets.toml. A figure is None if it was not measured.
    `scale` is the content of build/scale.json, or empty."""
    ours, most = (found(scenarios, one(Placer.REAL, nodes)) for nodes in (1000, 5000))
    noop, idle = found(scenarios, one(Placer.NOOP, 1000)), found(scenarios, singly(Placer.REAL))
    few, many = (found(scenarios, one(Placer.REAL, 1000, native)) for native in (0, 10_000))
    return {
        "ratio_to_noop": _ratio(ours, noop, "burst.pods_per_s.median"),
        "idle_bound_ms_p50": at(idle, "idle_bound_ms.p50"),
        "idle_bound_ms_p99": at(idle, "idle_bound_ms.p99"),
        "extender_cpu_ms_per_pod": at(ours, "burst.extender_cpu_ms_per_pod.median"),
        "filter_ms_p99_5000": at(most, "burst.filter_ms_p99.median"),
        "rss_mb_5000x50000": scale.get("rss_mb_5000x50000"),
        "rest_bytes_per_pod_0": at(few, "burst.rest_bytes_per_pod.median"),
        "rest_bytes_per_pod_10000": at(many, "burst.rest_bytes_per_pod.median"),
        "rest_bytes_ratio": _ratio(many, few, "burst.rest_bytes_for_pods.median"),
    }


def ratios_to_noop(scenarios: Sequence[Json]) -> list[float]:
    """Returns the ratio of this extender's rate to the no-op extender's rate, for each round. The state
    of the machine differs least between the bursts of the same round."""
    both = (found(scenarios, one(placer, 1000)) for placer in (Placer.REAL, Placer.NOOP))
    ours, noop = (at(each, "burst.pods_per_s.each") or () for each in both)
    return [mine / limit for mine, limit in zip(ours, noop, strict=False)]


def found(scenarios: Sequence[Json], wanted: Scenario | None) -> Json:
    """Returns the outcome of a scenario of the table. Returns {} if the run did not have the scenario,
    or had another number of Nodes for the scenario."""
    if wanted is None:
        return {}
    known = {(each["stage"], each["name"], each["nodes"]): each for each in scenarios}
    return known.get((wanted.stage, wanted.name, wanted.nodes), {})


def at(figures: Any, path: str) -> Any:
    """Returns a nested figure, as in "burst.pods_per_s.median", or None."""
    return reduce(lambda within, name: (within or {}).get(name), path.split("."), figures)


def _ratio(figures: Json, to: Json, path: str) -> float | None:
    value, unit = at(figures, path), at(to, path)
    return None if value is None or not unit else value / unit
