"""What a run is measured by in the end, from what both systems said of it: overlaps and evictions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from deploy.local.cluster import Cluster
from tests.chaos.checker import Checker
from tests.chaos.evictions import Measured, measured, percentile
from tests.chaos.overlap import Overlap, Stay, overlaps, read_processes
from tests.chaos.quiet_periods import QuietPeriods
from tests.chaos.signals import Signal, read_signals
from tests.chaos.state_loss import AFTERWARDS_S
from tests.chaos.workload import PROCESSES

_SLOWEST = 10


@dataclass(frozen=True, slots=True)
class Figures:
    overlap_seconds_max: float
    """For how long a native job and a Pod had the same cores at most."""
    overlap_after_state_loss_s: float
    """The same soon after Slurm lost all of its state; a run is not held to it."""
    overlap_of_forgotten_jobs_s: float
    """The same with a native job whose start slurmctld forgot; a run is not held to it."""
    evict_ms_p99: float | None
    """From slurmctld's word to the Pod's deletion seen, while nothing fails; 50 at once included."""
    evict_ms_p50: float | None
    evict_ms_max: float | None
    evictions: dict[str, int]
    """How many were measured, by what Slurm said."""
    native_starts: int
    """How many processes of native jobs said that they had begun."""


def signals_of(cluster: Cluster) -> list[Signal]:
    """Returns all that slurmctld logged, by the clock that everything else goes by."""
    ahead = _ahead()
    with (cluster.logs / "slurmctld.log").open(errors="replace") as log:
        return [replace(each, at=each.at - ahead) for each in read_signals(log)]


def processes_of(cluster: Cluster, cpus: Mapping[str, int], checker: Checker) -> list[Stay]:
    """Returns when native jobs' processes were there, by that clock; `cpus` are the jobs' by name."""
    ahead = _ahead()
    files = (cluster.directory / "home").glob(f"*/{PROCESSES}")
    said = (line for file in files for line in file.read_text().splitlines())
    return [
        replace(each, first=each.first - ahead, last=each.last - ahead)
        for each in read_processes(said, cpus, checker.cores_of)
    ]


def figures(
    signals: Iterable[Signal],
    processes: Iterable[Stay],
    checker: Checker,
    quiet: QuietPeriods,
    log: Callable[[float, str], None],
) -> Figures:
    """`log` is told moments and what was then."""
    processes, pods = list(processes), checker.lingering_pods(quiet.covers)
    met = list(overlaps(processes, pods, checker.node_cpus, checker.disowned))
    when = {(one.at, one.node) for one in met}
    everything = overlaps(processes, pods, checker.node_cpus)
    unknown = [one for one in everything if (one.at, one.node) not in when]
    lost = [one for one in met if checker.follows_state_loss(one.at, AFTERWARDS_S)]
    for one in (*met, *unknown):
        log(one.at, f"OVERLAP of {one.seconds:.2f} s on {one.node}: {one.words}")
    evicted = sorted(measured(signals, checker.eviction, quiet), key=lambda each: -each.took_s)
    for each in evicted[:_SLOWEST]:
        log(each.signal.at, f"{each.pod} {each.signal.kind}: told in {each.took_s:.3f} s")
    return Figures(
        overlap_seconds_max=_longest(one for one in met if one not in lost),
        overlap_after_state_loss_s=_longest(lost),
        overlap_of_forgotten_jobs_s=_longest(unknown),
        evict_ms_p99=_milliseconds(evicted, 0.99),
        evict_ms_p50=_milliseconds(evicted, 0.5),
        evict_ms_max=_milliseconds(evicted, 1.0),
        evictions=dict(Counter(each.signal.kind for each in evicted)),
        native_starts=len(processes),
    )


def _ahead() -> float:
    """How far the clock on the wall is ahead of time.monotonic()."""
    return time.time() - time.monotonic()


def _longest(found: Iterable[Overlap]) -> float:
    return round(max((each.seconds for each in found), default=0.0), 3)


def _milliseconds(evicted: Iterable[Measured], share: float) -> float | None:
    took = percentile((each.took_s for each in evicted), share)
    return None if took is None else round(took * 1e3, 1)
