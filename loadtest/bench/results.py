"""What came of each scenario, and how build/bench.json tells it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Final

from deploy.local.demo.findings import percentile
from loadtest.bench.scenarios import Scenario
from loadtest.figures import Burst
from loadtest.meters import Counts, Reading

Json = dict[str, Any]

# Pictures of the cluster, whatever Pods and jobs there are.
_BY_THE_CLOCK: Final = frozenset({"GET conf", "GET nodes", "GET partitions"})


@dataclass(slots=True)
class Outcome:
    """Of one scenario; grows with the run. `broken` says what did not work: what was measured before
    is kept."""

    scenario: Scenario
    bursts: list[Burst] = field(default_factory=list)
    steadies: list[Burst] = field(default_factory=list)
    idle_ms: list[float] = field(default_factory=list)
    peak_rss_mb: float | None = None
    """Of the extender."""
    broken: str = ""

    def as_json(self) -> Json:
        return {
            **asdict(self.scenario),
            "broken": self.broken or None,
            "burst": figures(self.bursts),
            "steady": figures(self.steadies),
            "idle_bound_ms": {
                "pods": len(self.idle_ms),
                **{f"p{part}": _rounded(of_enough(self.idle_ms, part)) for part in (50, 95, 99)},
            },
            "peak_rss_mb": _rounded(self.peak_rss_mb),
            "cpu_ms_per_pod_by_component": _by_kind(self.bursts, _cpu_ms),
            "rest_calls_per_pod_by_call": _by_kind(self.bursts, lambda burst: burst.spent.rest_calls),
            "rest_bytes_per_pod_by_call": _by_kind(self.bursts, lambda burst: burst.spent.rest_bytes),
            "api_writes_per_pod_by_kind": _by_kind(self.bursts, lambda burst: burst.spent.api_writes),
        }


def of_enough(values: Sequence[float], percent: int) -> float | None:
    """A percentile; None of fewer values than would have one beyond it: it would be their maximum."""
    return percentile(values, percent) if len(values) * (100 - percent) >= 100 else None


def figures(bursts: Sequence[Burst]) -> dict[str, Json]:
    """Each metric's median over the bursts, its least and its greatest. Without what was not counted."""
    found = {}
    for name, measure in METRICS.items():
        values = [value for burst in bursts if (value := measure(burst)) is not None]
        if values:
            numbers = {"median": median(values), "min": min(values), "max": max(values)}
            spread: Json = {kind: _rounded(number) for kind, number in numbers.items()}
            found[name] = spread | {"each": [_rounded(value) for value in values]}
    return found


def _part_of(burst: Burst, counts: Counts) -> float | None:
    """A Pod's; None where nothing was counted."""
    return sum(counts.values()) / len(burst.bound_ms) if counts else None


def _for_pods(counts: Counts) -> Counts:
    """Of the calls that are made for Pods: a burst has one picture of all nodes more or less, by chance,
    and that is as much as all else."""
    return {call: count for call, count in counts.items() if call not in _BY_THE_CLOCK}


def _cpu_ms(burst: Burst) -> Counts:
    return {name: seconds * 1000 for name, seconds in burst.spent.cpu_s.items()}


def _release_cpu_ms(burst: Burst) -> float | None:
    """The extender's."""
    seconds = burst.released.cpu_s.get("extender", 0.0) if burst.released is not None else 0.0
    return seconds * 1000 / len(burst.bound_ms) or None


def _of_release(burst: Burst, counts_of: Callable[[Reading], Counts]) -> float | None:
    return None if burst.released is None else _part_of(burst, counts_of(burst.released))


def _slurm_cpu_ms(burst: Burst) -> float:
    cpu_s = burst.spent.cpu_s
    return sum(cpu_s.get(name, 0.0) for name in ("slurmctld", "slurmrestd")) * 1000 / len(burst.bound_ms)


METRICS: Final[Mapping[str, Callable[[Burst], float | None]]] = {
    "pods_per_s": lambda burst: burst.pods_per_s,
    "created_per_s": lambda burst: len(burst.bound_ms) / burst.creating_s,
    "bound_ms_p50": lambda burst: percentile(burst.bound_ms, 50),
    "bound_ms_p95": lambda burst: percentile(burst.bound_ms, 95),
    "bound_ms_p99": lambda burst: percentile(burst.bound_ms, 99),
    "start_bound_pods": lambda burst: len(burst.start_bound_ms) or None,
    "start_bound_ms_p50": lambda burst: percentile(burst.start_bound_ms, 50),
    "start_bound_ms_p95": lambda burst: percentile(burst.start_bound_ms, 95),
    "start_bound_ms_p99": lambda burst: percentile(burst.start_bound_ms, 99),
    "extender_cpu_ms_per_pod": lambda burst: burst.extender_cpu_ms_per_pod or None,
    "slurm_cpu_ms_per_pod": _slurm_cpu_ms,
    "cpu_ms_per_pod": lambda burst: burst.cpu_ms_per_pod,
    "rest_calls_per_pod": lambda burst: _part_of(burst, burst.spent.rest_calls),
    "rest_bytes_per_pod": lambda burst: _part_of(burst, burst.spent.rest_bytes),
    "rest_bytes_for_pods": lambda burst: _part_of(burst, _for_pods(burst.spent.rest_bytes)),
    "api_writes_per_pod": lambda burst: _part_of(burst, burst.spent.api_writes),
    "release_extender_cpu_ms_per_pod": _release_cpu_ms,
    "release_rest_calls_per_pod": lambda burst: _of_release(burst, lambda spent: spent.rest_calls),
    "release_rest_bytes_per_pod": lambda burst: _of_release(burst, lambda spent: spent.rest_bytes),
    "release_api_writes_per_pod": lambda burst: _of_release(burst, lambda spent: spent.api_writes),
    "filter_ms_p99": lambda burst: burst.spent.filter_s.percentile_ms(99),
}
"""Of one burst, or of Pods at a steady rate; None where it was not counted."""


def _by_kind(bursts: Iterable[Burst], counts_of: Callable[[Burst], Counts]) -> dict[str, float | None]:
    """A Pod's, over all bursts."""
    total, pods = defaultdict[str, float](float), 0
    for burst in bursts:
        pods += len(burst.bound_ms)
        for kind, count in counts_of(burst).items():
            total[kind] += count
    return {kind: _rounded(count / pods) for kind, count in sorted(total.items()) if count}


def _rounded(value: float | None) -> float | None:
    """To a hundredth."""
    return None if value is None else round(value, 2)
