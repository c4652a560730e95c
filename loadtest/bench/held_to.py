"""What the extender is held to, and whether it keeps it. Reads what build/bench.json holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from loadtest.bench.scenarios import ONE_AT_A_TIME, SCENARIOS, Flow, Path, Scenario, Who

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Budget:
    """`find` takes it from the run and from what others measured; None where they have not."""

    key: str
    words: str
    limit: float
    find: Callable[["Measured"], float | None]
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kept` is None where nothing was measured."""

    key: str
    words: str
    value: float | None
    limit: float
    at_least: bool
    kept: bool | None

    @property
    def word(self) -> str:
        return {True: "kept", False: "FALLS SHORT", None: "not measured"}[self.kept]


@dataclass(frozen=True, slots=True)
class Measured:
    """`scenarios` as in build/bench.json; `scale` is build/scale.json, empty where there is none.
    `as_listed`: with as many Pods and repeats as the table has."""

    scenarios: Sequence[Json]
    scale: Json
    as_listed: bool = True

    def figure(self, scenario: Scenario, *path: str) -> float | None:
        """A figure of that scenario; None where it was not run as the table has it."""
        return _at(self._found(scenario), path)

    def _found(self, scenario: Scenario) -> Json:
        wanted = {name: asdict(scenario)[name] for name in _IDENTITY}
        for found in self.scenarios if self.as_listed else ():
            if {name: found[name] for name in _IDENTITY} == wanted:
                return found
        return {}

    def ratio_to_noop(self) -> float | None:
        ours, noop = (self.figure(each, *_POD_RATE) for each in (_OURS[1000], _NOOP_1000))
        return None if ours is None or not noop else ours / noop

    def ratios_to_noop(self) -> list[float]:
        """Of each round: what the machine did meanwhile differs least."""
        ours, noop = (
            self._found(each).get("burst", {}).get("pods_per_s", {}).get("each", ())
            for each in (_OURS[1000], _NOOP_1000)
        )
        return [mine / limit for mine, limit in zip(ours, noop, strict=False)]

    def rest_ratio(self) -> float | None:
        none, many = (self.figure(each, *_FOR_PODS) for each in (_NATIVE_0, _NATIVE_10000))
        return None if many is None or not none else many / none


_IDENTITY: Final = ("stage", "name", "nodes")
_POD_RATE: Final = ("burst", "pods_per_s", "median")
_REST_BYTES: Final = ("burst", "rest_bytes_per_pod", "median")
_FOR_PODS: Final = ("burst", "rest_bytes_for_pods", "median")


def one(who: Who, nodes: int, native: int | None = None) -> Scenario:
    """The first of the table that goes the usual way."""
    return next(
        each
        for each in SCENARIOS
        if (each.who, each.nodes, each.native) == (who, nodes, native)
        and (each.flow, each.path) == (Flow.GATE_FIRST, Path.FAST)
    )


def singly(who: Who) -> Scenario:
    """Its Pods one at a time: in a section of their own where there is one."""
    those = (each for each in SCENARIOS if (each.stage, each.who) == (ONE_AT_A_TIME, who))
    return next(those, one(who, 1000))


_OURS: Final = {nodes: one(Who.REAL, nodes) for nodes in (1000, 5000)}
_IDLE: Final = singly(Who.REAL)
_NOOP_1000: Final = one(Who.NOOP, 1000)
_NATIVE_0, _NATIVE_10000 = (one(Who.REAL, 1000, native) for native in (0, 10_000))


def _of(nodes: int, *path: str) -> Callable[[Measured], float | None]:
    return lambda measured: measured.figure(_OURS[nodes], *path)


BUDGETS: Final = (
    Budget(
        "ratio_to_noop",
        "Pods/s of a burst, ours with Slurm to the no-op extender, both shown all of 1,000 Nodes",
        0.7,
        Measured.ratio_to_noop,
        at_least=True,
    ),
    Budget(
        "idle_bound_ms_p50",
        "create to bound one at a time, 1,000 Nodes, ms, p50",
        30,
        lambda measured: measured.figure(_IDLE, "idle_bound_ms", "p50"),
    ),
    Budget(
        "idle_bound_ms_p99",
        "the same, p99",
        100,
        lambda measured: measured.figure(_IDLE, "idle_bound_ms", "p99"),
    ),
    Budget(
        "extender_cpu_ms_per_pod",
        "CPU of the extender in a burst, until all Pods run, 1,000 Nodes, ms a Pod",
        5,
        _of(1000, "burst", "extender_cpu_ms_per_pod", "median"),
    ),
    Budget(
        "filter_ms_p99_5000",
        "/filter in a burst, 5,000 Nodes, of nominated Pods and so of one name, by the server's own"
        " histogram, ms, p99",
        5,
        _of(5000, "burst", "filter_ms_p99", "median"),
    ),
    Budget(
        "rss_mb_5000x50000",
        "memory of the extender with 5,000 Nodes and 50,000 Pods at the gate, MB (`make bench-scale`)",
        500,
        lambda measured: measured.scale.get("rss_mb_5000x50000"),
    ),
    Budget(
        "rest_bytes_per_pod_0",
        "to and from slurmrestd in a burst, until all run, no native jobs, 1,000 Nodes, bytes a Pod",
        30_000,
        lambda measured: measured.figure(_NATIVE_0, *_REST_BYTES),
    ),
    Budget(
        "rest_bytes_per_pod_10000",
        "the same beside 10,000 native jobs",
        30_000,
        lambda measured: measured.figure(_NATIVE_10000, *_REST_BYTES),
    ),
    Budget(
        "rest_bytes_ratio",
        "the latter to the former, without the pictures of all nodes that the clock asks for",
        1.2,
        Measured.rest_ratio,
    ),
)


def verdicts(measured: Measured) -> list[Verdict]:
    """One for each budget, in their order."""
    return [_judge(budget, budget.find(measured)) for budget in BUDGETS]


def _judge(budget: Budget, value: float | None) -> Verdict:
    kept = None
    if value is not None:
        kept = value >= budget.limit if budget.at_least else value <= budget.limit
    rounded = None if value is None else round(value, 3)
    return Verdict(budget.key, budget.words, rounded, budget.limit, budget.at_least, kept)


def _at(found: Any, path: Sequence[str]) -> float | None:
    for name in path:
        found = (found or {}).get(name)
    return None if found is None else float(found)
