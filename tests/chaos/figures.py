"""Computes the overlaps and evictions of a run, from the observations and logs of both systems."""

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
    """Longest time in which a native job and a Pod had the same cores."""
    overlap_after_state_loss_s: float
    """Longest time of such an overlap soon after Slurm lost all of its state. No limit applies."""
    overlap_of_forgotten_jobs_s: float
    """Longest time of such an overlap for native jobs whose start slurmctld forgot. No limit applies."""
    evict_ms_p99: float | None
    """Time from slurmctld's signal to the observed deletion of the Pod, while nothing fails (99th
    percentile). Evictions of 50 Pods at once count, too."""
    evict_ms_p50: float | None
    evict_ms_max: float | None
    evictions: dict[str, int]
    """Number of measured evictions, by the kind of Slurm's signal."""
    native_starts: int
    """Number of processes of native jobs that reported their start."""


def signals_of(cluster: Cluster) -> list[Signal]:
    """Returns all signals in slurmctld's log, with times of time.monotonic()."""
    ahead = _ahead()
    with (cluster.logs / "slurmctld.log").open(errors="replace") as log:
        return [replace(each, at=each.at - ahead) for each in read_signals(log)]


def processes_of(cluster: Cluster, cpus: Mapping[str, int], checker: Checker) -> list[Stay]:
    """Returns the stays of native jobs' processes, with times of time.monotonic(). `cpus` has the CPUs
    by the name of the job."""
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
    """Computes the measurements. Calls `log` with the time and the text of each overlap and of the
    slowest evictions."""
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
    """Returns the seconds by which time.time() is ahead of time.monotonic()."""
    return time.time() - time.monotonic()


def _longest(found: Iterable[Overlap]) -> float:
    return round(max((each.seconds for each in found), default=0.0), 3)


def _milliseconds(evicted: Iterable[Measured], share: float) -> float | None:
    took = percentile((each.took_s for each in evicted), share)
    return None if took is None else round(took * 1e3, 1)
