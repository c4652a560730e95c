"""Metrics that a leader counts at each scrape: Pods, nodes, pools, and demand."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from extender.jobs.claim import Charged
from extender.node_sync.drain_decision import Tally
from extender.node_sync.drains import DrainCause
from extender.node_view.view import ClusterView
from extender.placement.nodes.rejecting_nodes import Closure
from extender.placement.transitions.kept_back import REASONS
from extender.pools.demand import Demand
from extender.pools.roll_out import PoolState
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.telemetry import catalogue
from extender.telemetry.capacity import Capacity, NodeState, Share
from extender.telemetry.partitions import Wanted, partitions_of, startable
from extender.telemetry.waiting import WaitsFor, waits_for
from extender.unmanaged.adoption import Stage
from service.cooperative import yielding
from service.metrics import Metric

_BOUND = frozenset({State.BOUND, State.EVICTING})


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of a leader's metrics, called at each scrape. The default sources are empty."""

    placeholders: Callable[[], Iterable[Placeholder]] = tuple
    nodes: Callable[[], Tally] = Tally
    closures: Callable[[], Iterable[Closure]] = tuple
    adopted_pods: Callable[[], Mapping[Stage, int]] = dict
    pools: Callable[[], Mapping[str, PoolState]] = dict
    demand: Callable[[], Mapping[str, Demand]] = dict
    capacity: Callable[[], Capacity] = Capacity
    view: Callable[[], ClusterView] = ClusterView
    reports_jobs: bool = False
    """True if the metric `slurm_extender_job_info` has a series for each bound Pod."""


class PodCounts:
    """Numbers of all placeholders for one scrape, from a single pass."""

    def __init__(self, reports_jobs: bool = False) -> None:
        self._reports_jobs = reports_jobs
        self.tally: Counter[tuple[State, str]] = Counter()
        """Number of placeholders by state and by the cause's reason."""
        self.oldest: dict[tuple[State, str], str] = {}
        """Earliest creation, by state and by the cause's reason."""
        self.wanted: Counter[Wanted] = Counter()
        """Number of Pods in Slurm's queue by request."""
        self.with_jobs: list[Placeholder] = []
        """Placeholders whose Pods still use their resources: bound, or being evicted. Empty unless the
        metrics report jobs (`Sources.reports_jobs`)."""

    def add(self, record: Placeholder) -> None:
        """Counts a placeholder."""
        found = record.state, record.cause.reason if record.cause is not None else ""
        self.tally[found] += 1
        created = record.members[0].pod.created if record.members else ""
        if created and created < self.oldest.get(found, "~"):
            self.oldest[found] = created
        if self._reports_jobs and record.state in _BOUND and record.job.id is not None:
            self.with_jobs.append(record)
        if (wanted := Wanted.of(record)) is not None:
            self.wanted[wanted] += 1


class LeaderStates(Collector):
    """Collector of the leader's metrics."""

    def __init__(self) -> None:
        self._sources = Sources()
        self._pods = PodCounts()
        self._bound: Counter[str] = Counter()
        """Number of Pods bound while this replica led, by partition."""

    def count(self, sources: Sources = Sources()) -> None:
        """Sets the sources of the next scrapes. By default, all sources are empty."""
        self._sources, self._pods = sources, PodCounts()

    async def count_pods(self) -> None:
        """Counts the Pods for the next scrape. Yields to other work, because 50,000 Pods may exist."""
        sources, counts = self._sources, PodCounts(self._sources.reports_jobs)
        async for each in yielding(tuple(sources.placeholders())):
            counts.add(each)
        if sources is self._sources:
            self._pods = counts

    def bound(self, record: Placeholder) -> None:
        self._bound.update(partitions_of(record.request.job.partition, self._sources.view()))

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        sources = self._sources
        capacity, view = sources.capacity(), sources.view()
        yield from _waiting(self._pods)
        startable_pods = startable(self._pods.wanted, capacity.idle, view)
        yield _counted(catalogue.STARTABLE, view.partitions, startable_pods)
        yield self._bound_pods(view)
        yield _counted(catalogue.ADOPTED, Stage, sources.adopted_pods())
        yield from _drains(sources.nodes())
        yield _rejecting(sources.closures())
        yield from _capacity(capacity)
        yield from _pools(sources.pools())
        yield from _demand(sources.demand())
        yield _job_info(self._pods.with_jobs)

    def _bound_pods(self, view: ClusterView) -> CounterMetricFamily:
        """Returns the counter of bound Pods. Unused partitions have 0, so that Prometheus also counts
        the first Pod of a partition as an increase."""
        family = catalogue.BOUND_PODS.read_counter(None)
        for partition in view.partitions:
            family.add_metric([partition], self._bound[partition])
        return family


def _waiting(pods: PodCounts) -> Iterator[GaugeMetricFamily]:
    states, waiting, kept = Counter[str](), Counter[str](), Counter[str]()
    for (state, reason), count in pods.tally.items():
        states[state] += count
        if (awaited := waits_for(state, reason)) is not None:
            waiting[awaited] += count
        if state is State.SEEN:
            kept[reason] += count
    lost = sum(n for (state, reason), n in pods.tally.items() if state is State.BOUND and reason)
    yield _counted(catalogue.PLACEHOLDERS, State, states)
    yield _counted(catalogue.WAITING, WaitsFor, waiting)
    yield _oldest(pods.oldest)
    yield _counted(catalogue.KEPT_BACK, sorted(REASONS), kept)
    yield catalogue.WITHOUT_JOB.with_value(lost)


def _oldest(created: Mapping[tuple[State, str], str]) -> GaugeMetricFamily:
    """Returns the metric of the oldest Pods. `created` has times in kube-apiserver's format, so the
    times sort as text."""
    first: dict[WaitsFor, str] = {}
    for (state, reason), time in created.items():
        if (awaited := waits_for(state, reason)) is not None:
            first[awaited] = min(time, first.get(awaited, time))
    family = catalogue.OLDEST.read()
    for awaited, time in first.items():
        family.add_metric([awaited], datetime.fromisoformat(time).timestamp())
    return family


def _drains(tally: Tally) -> Iterator[GaugeMetricFamily]:
    yield _counted(catalogue.DRAINED, DrainCause, tally.drained)
    oldest = catalogue.OLDEST_DRAIN.read()
    for cause, since in tally.oldest.items():
        oldest.add_metric([cause], since)
    yield oldest
    yield catalogue.SUPPRESSED.with_value(tally.suppressed)


def _rejecting(closures: Iterable[Closure]) -> GaugeMetricFamily:
    closed = {("all" if each.to_all else "similar", each.node) for each in closures}
    counts = Counter(closed_to for closed_to, _ in closed)
    return _counted(catalogue.REJECTING, ("all", "similar"), counts)


def _capacity(capacity: Capacity) -> Iterator[GaugeMetricFamily]:
    yield _counted(catalogue.NODES, NodeState, capacity.nodes)
    yield _counted(catalogue.CPUS, Share, capacity.cpus)
    yield _counted(catalogue.GPUS, Share, capacity.gpus)
    yield _counted(catalogue.MEMORY, Share, capacity.memory_bytes)
    yield catalogue.PROLOG_ERRORS.with_value(capacity.prolog_errors)
    yield catalogue.AGENTS.with_value(capacity.agents)


def _pools(states: Mapping[str, PoolState]) -> Iterator[GaugeMetricFamily]:
    nodes, stopped = catalogue.POOL_NODES.read(), catalogue.POOL_STOPPED.read()
    for pool, state in states.items():
        counts = {
            "wanted": state.wanted,
            "serving": state.serving,
            "updated": state.updated,
            "unavailable": state.unavailable,
            "busy": state.busy,
            "outdated_busy": state.busy_outdated,
            "kept": state.kept,
            "reserved": state.reserved,
        }
        for which, count in counts.items():
            nodes.add_metric([pool, which], count)
        stopped.add_metric([pool], bool(state.stopped))
    yield nodes
    yield stopped


def _demand(demand: Mapping[str, Demand]) -> Iterator[GaugeMetricFamily]:
    for metric, what in (
        (catalogue.PENDING_JOBS, "jobs"),
        (catalogue.PENDING_NODES, "nodes"),
        (catalogue.PENDING_CPUS, "cpus"),
        (catalogue.PENDING_GPUS, "gpus"),
    ):
        family = metric.read()
        for pool, waits in demand.items():
            family.add_metric([pool], getattr(waits, what))
        yield family


def _job_info(placeholders: Iterable[Placeholder]) -> GaugeMetricFamily:
    """Returns the metric of jobs. A Pod keeps its devices until its end, so Pods that are being evicted
    also count."""
    family = catalogue.JOB_INFO.read()
    for record in placeholders:
        charged = record.job.verdict.charged or _asked(record)
        for pod in record.pods:
            if pod.life.node is not None:
                family.add_metric([str(record.job.id), pod.namespace, pod.name, *charged], 1)
    return family


def _asked(record: Placeholder) -> Charged:
    """Returns the account and the partition of a job that the extender has not read, from the request.
    The extender reads each job that it submits for a user, so only jobs of the token's own user are not
    read."""
    job = record.request.job
    return Charged("", job.account or "", job.partition or "")


def _counted(metric: Metric, values: Iterable[str], counts: Mapping[Any, int]) -> GaugeMetricFamily:
    """Returns a metric with a count for each value of its label."""
    family = metric.read()
    for value in values:
        family.add_metric([value], counts.get(value, 0))
    return family
