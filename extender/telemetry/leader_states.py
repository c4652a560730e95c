"""What a leader counts when its metrics are read: Pods, nodes, pools, and what waits for these."""

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
from service.metrics import Metric

_BOUND = frozenset({State.BOUND, State.EVICTING})


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a leader's metrics, called at each reading. By default there is nothing."""

    placeholders: Callable[[], Iterable[Placeholder]] = tuple
    nodes: Callable[[], Tally] = Tally
    closures: Callable[[], Iterable[Closure]] = tuple
    adopted_pods: Callable[[], Mapping[Stage, int]] = dict
    pools: Callable[[], Mapping[str, PoolState]] = dict
    demand: Callable[[], Mapping[str, Demand]] = dict
    capacity: Callable[[], Capacity] = Capacity
    view: Callable[[], ClusterView] = ClusterView
    tells_jobs: bool = False
    """True if each bound Pod has a series (`slurm_extender_job_info`)."""


class LeaderStates(Collector):
    """Counts them."""

    def __init__(self) -> None:
        self._sources = Sources()
        self._bound: Counter[str] = Counter()
        """How many Pods were bound while this replica led, by partition."""

    def count(self, sources: Sources = Sources()) -> None:
        """From now on these are counted; by default nothing."""
        self._sources = sources

    def bound(self, record: Placeholder) -> None:
        self._bound.update(partitions_of(record.request.job.partition, self._sources.view()))

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        sources = self._sources
        capacity, view = sources.capacity(), sources.view()
        yield from _pods(sources.placeholders())
        yield _startable(sources.placeholders(), capacity, view)
        yield self._bound_pods(view)
        yield _counted(catalogue.ADOPTED, Stage, sources.adopted_pods())
        yield from _drains(sources.nodes())
        yield _rejecting(sources.closures())
        yield from _capacity(capacity)
        yield from _pools(sources.pools())
        yield from _demand(sources.demand())
        yield _job_info(sources.placeholders() if sources.tells_jobs else ())

    def _bound_pods(self, view: ClusterView) -> CounterMetricFamily:
        """From 0 on: the first Pod of a partition is an increase, too."""
        family = catalogue.BOUND_PODS.read_counter(None)
        for partition in view.partitions:
            family.add_metric([partition], self._bound[partition])
        return family


def _pods(placeholders: Iterable[Placeholder]) -> Iterator[GaugeMetricFamily]:
    """Looks at each placeholder once: there may be 50,000."""
    tally: Counter[tuple[State, str]] = Counter()
    oldest: dict[tuple[State, str], str] = {}
    for each in placeholders:
        found = each.state, each.cause.reason if each.cause is not None else ""
        tally[found] += 1
        created = each.members[0].pod.created if each.members else ""
        if created and created < oldest.get(found, "~"):
            oldest[found] = created
    states, waiting, kept = Counter[str](), Counter[str](), Counter[str]()
    for (state, reason), count in tally.items():
        states[state] += count
        if (awaited := waits_for(state, reason)) is not None:
            waiting[awaited] += count
        if state is State.SEEN:
            kept[reason] += count
    lost = sum(count for (state, reason), count in tally.items() if state is State.BOUND and reason)
    yield _counted(catalogue.PLACEHOLDERS, State, states)
    yield _counted(catalogue.WAITING, WaitsFor, waiting)
    yield _oldest(oldest)
    yield _counted(catalogue.KEPT_BACK, sorted(REASONS), kept)
    yield catalogue.WITHOUT_JOB.told(lost)


def _startable(
    placeholders: Iterable[Placeholder], capacity: Capacity, view: ClusterView
) -> GaugeMetricFamily:
    wanted = Counter(each for record in placeholders if (each := Wanted.of(record)) is not None)
    return _counted(catalogue.STARTABLE, view.partitions, startable(wanted, capacity.idle, view))


def _oldest(created: Mapping[tuple[State, str], str]) -> GaugeMetricFamily:
    """`created` has the times of the oldest Pods as kube-apiserver writes them: they sort as text."""
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
    yield catalogue.SUPPRESSED.told(tally.suppressed)


def _rejecting(closures: Iterable[Closure]) -> GaugeMetricFamily:
    closed = {("all" if each.to_all else "similar", each.node) for each in closures}
    counts = Counter(closed_to for closed_to, _ in closed)
    return _counted(catalogue.REJECTING, ("all", "similar"), counts)


def _capacity(capacity: Capacity) -> Iterator[GaugeMetricFamily]:
    yield _counted(catalogue.NODES, NodeState, capacity.nodes)
    yield _counted(catalogue.CPUS, Share, capacity.cpus)
    yield _counted(catalogue.GPUS, Share, capacity.gpus)
    yield _counted(catalogue.MEMORY, Share, capacity.memory_bytes)
    yield catalogue.PROLOG_ERRORS.told(capacity.prolog_errors)
    yield catalogue.AGENTS.told(capacity.agents)


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
    """Also counts Pods that are being evicted: a Pod has devices until its end."""
    family = catalogue.JOB_INFO.read()
    for record in placeholders:
        if record.state in _BOUND and record.job.id is not None:
            charged = record.job.verdict.charged or _asked(record)
            for pod in record.pods:
                if pod.life.node is not None:
                    family.add_metric([str(record.job.id), pod.namespace, pod.name, *charged], 1)
    return family


def _asked(record: Placeholder) -> Charged:
    """Returns what the request says. The extender reads each job that it submits for a user: only jobs
    of the token's own user may be unread."""
    job = record.request.job
    return Charged("", job.account or "", job.partition or "")


def _counted(metric: Metric, values: Iterable[str], counts: Mapping[Any, int]) -> GaugeMetricFamily:
    """Returns a metric with a count for each value of its label."""
    family = metric.read()
    for value in values:
        family.add_metric([value], counts.get(value, 0))
    return family
