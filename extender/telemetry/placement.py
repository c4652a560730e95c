"""Logs and metrics of placeholders, adopted Pods, effects and evictions while this replica leads."""

import logging
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from extender.audit.compare import Finding, FindingKind
from extender.node_sync.drain_decision import Tally as NodeTally
from extender.node_sync.drain_decision import Why
from extender.placement.eviction_limiter import EvictionLimiter
from extender.placement.kept_back import REASONS
from extender.pools.demand import Demand
from extender.pools.roll_out import PoolState
from extender.record.events import Effect, Failure
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.unmanaged.adoption import Adopted, Stage
from service.health import Health
from service.metrics import SECONDS, child
from wellknown.log_fields import PodName, about

log = structlog.get_logger()

_LOUD = frozenset({State.EVICTING, State.REPLACING, State.INVALID})
_QUIET = frozenset({State.SEEN, State.SUBMITTING, State.DONE})


class PlacementTelemetry:
    """An observer of the ledger, the dispatcher, the audit and the controller of nodes. An outage that
    health has logged is not logged again for each effect that fails in it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.health = Health()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, buckets=SECONDS, registry=registry)
        self._transitions = counter(
            "slurm_extender_placeholder_transitions", "Placeholders that came into a state.", ["state"]
        )
        self._placement = histogram(
            "slurm_extender_placement_seconds", "From a Pod first seen to its binding seen."
        )
        self._effects = histogram(
            "slurm_extender_effect_seconds",
            "Effects carried out on Slurm and Kubernetes, by how they ended.",
            ["effect", "outcome"],
        )
        self._evictions = counter(
            "slurm_extender_evictions",
            "Pods deleted because their job ended, by why it did.",
            ["reason"],
        )
        self._throttled = gauge(
            "slurm_extender_evictions_throttled",
            "Deletions that the eviction limiter holds back: more than may be in a minute.",
        )
        self._findings = gauge(
            "slurm_extender_audit_findings",
            "Differences between both systems that the leader's last audit found and confirmed.",
            ["kind"],
        )
        self._leads = gauge(
            "slurm_extender_leading", "Whether this replica leads, which one does at a time."
        )
        self.audited(())
        self._states = _States()
        registry.register(self._states)

    def observe(self, before: Placeholder | None, after: Placeholder) -> None:
        """Counts and logs a placeholder that came into another state."""
        child(self._transitions, after.state).inc()
        if after.state is State.BOUND and before is not None:
            self._placement.observe(after.since - after.first_seen)
        if after.state is State.EVICTING and after.cause is not None:
            self._evictions.labels(after.cause.reason).inc()
        tell = log.warning if after.state in _LOUD else log.info
        found_bound = before is None and after.state is State.BOUND  # at the start: very many
        if after.state in _QUIET or found_bound:
            if not log.is_enabled_for(logging.DEBUG):
                return
            tell = log.debug
        tell(
            "placeholder",
            state=after.state,
            before=before.state if before else None,
            **about(after.workload, after.job.id),
            node=",".join(each.slot.node for each in after.members if each.slot) or None,
            why=after.cause.message if after.cause else None,
        )

    def throttled(self, eviction_limiter: EvictionLimiter, record: Placeholder | None) -> None:
        """Notes a change in what the eviction limiter delays. `record`: one more that waits."""
        self._throttled.set(eviction_limiter.held)
        if record is not None:
            log.warning(
                "eviction throttled",
                **about(record.workload, record.job.id),
                why=record.evicted_for.message if record.evicted_for else "a job without its Pod",
            )

    def audited(self, findings: Iterable[Finding]) -> None:
        """Counts the differences between both systems."""
        tally = Tally(finding.kind for finding in findings)
        for kind in FindingKind:
            self._findings.labels(kind).set(tally[kind])

    def done(self, effect: Effect, seconds: float) -> None:
        """Measures an effect that was carried out."""
        child(self._effects, type(effect).__name__, "done").observe(seconds)

    def failed(
        self, effect: Effect, seconds: float, failure: Failure, about_it: Mapping[str, Any]
    ) -> None:
        """Measures an effect that failed, and logs it, unless health has logged the outage that is its
        cause."""
        outcome, name = failure.remedy.name.lower(), type(effect).__name__
        child(self._effects, name, outcome).observe(seconds)
        tell, error = self.health.news(failure.trouble, log.info), failure.inner or failure.message
        tell("effect failed", effect=name, **about_it, outcome=outcome, error=error)

    def event_failed(self, event: Mapping[str, Any], failure: Failure) -> None:
        """Logs an Event about a Pod that could not be made."""
        tell = self.health.news(failure.trouble, log.warning)
        pod, name = PodName.of(event["involvedObject"]), event["metadata"]["name"]
        tell("Event not made", **about(pod), name=name, error=failure.inner)

    def adopted(self, record: Adopted) -> None:
        """Logs an adopted Pod whose job came into another stage."""
        adopted_pod = record.adopted_pod
        tell = log.info if record.stage in (Stage.WAITING, Stage.RUNNING) else log.warning
        tell(
            "adopted Pod", stage=record.stage, **about(adopted_pod, record.job_id), node=adopted_pod.node
        )

    @contextmanager
    def leading(
        self,
        placeholders: Callable[[], Iterable[Placeholder]],
        nodes: Callable[[], NodeTally],
        adopted_pods: Callable[[], Mapping[Stage, int]] = dict,
        pools: Callable[[], Mapping[str, PoolState]] = dict,
        demand: Callable[[], Mapping[str, Demand]] = dict,
    ) -> Iterator[None]:
        """A context in which this replica leads. The metrics count its placeholders, nodes, adopted Pods
        and pools when they are read, and what waits for these."""
        self._states.count(placeholders, nodes, adopted_pods, pools, demand)
        self._leads.set(1)
        try:
            yield
        finally:
            self._states.count()
            self._leads.set(0)
            self._throttled.set(0)
            self.audited(())


class _States(Collector):
    """What is counted when the metrics are read."""

    def __init__(self) -> None:
        self.count()

    def count(
        self,
        placeholders: Callable[[], Iterable[Placeholder]] = tuple,
        nodes: Callable[[], NodeTally] = NodeTally,
        adopted_pods: Callable[[], Mapping[Stage, int]] = dict,
        pools: Callable[[], Mapping[str, PoolState]] = dict,
        demand: Callable[[], Mapping[str, Demand]] = dict,
    ) -> None:
        """From now on these are counted; by default nothing."""
        self._placeholders, self._nodes, self._adopted_pods = placeholders, nodes, adopted_pods
        self._pools, self._demand = pools, demand

    def collect(self) -> Iterator[GaugeMetricFamily]:
        placeholders, nodes = tuple(self._placeholders()), self._nodes()
        states = Tally(p.state for p in placeholders)
        yield _counted("slurm_extender_placeholders", "Placeholders by state.", "state", State, states)
        words = "Slurm's nodes that are drained for what is wrong in Kubernetes, by what that is."
        yield _counted("slurm_extender_drained_nodes", words, "cause", Why, nodes.drained)
        yield GaugeMetricFamily(
            "slurm_extender_drains_suppressed",
            "Nodes that are not ready, while they are too many for any more to be drained.",
            value=nodes.suppressed,
        )
        words = "Pods that another scheduler bound to Slurm's nodes, by where the jobs for them stand."
        yield _counted("slurm_extender_adopted", words, "stage", Stage, self._adopted_pods())
        kept = Tally(p.cause.reason for p in placeholders if p.cause and p.state is State.SEEN)
        words = (
            "Pods for which no job is asked, since they could not use it, by what their condition says."
        )
        yield _counted("slurm_extender_kept_back", words, "reason", sorted(REASONS), kept)
        yield GaugeMetricFamily(
            "slurm_extender_pods_without_job",
            "Bound Pods whose job Slurm has lost, and whose next one does not run yet.",
            value=sum(p.state is State.BOUND and p.cause is not None for p in placeholders),
        )
        yield from _pools(self._pools())
        yield from _waiting_for(self._demand())


def _pools(states: Mapping[str, PoolState]) -> Iterator[GaugeMetricFamily]:
    words = "Nodes of a pool of slurmd Pods, by what they are; one may be several of these."
    nodes = GaugeMetricFamily("slurm_extender_pool_nodes", words, labels=["pool", "nodes"])
    words = "Whether a pool's roll-out has stopped, since slurmd Pods of the newest revision fail."
    stopped = GaugeMetricFamily("slurm_extender_pool_stopped", words, labels=["pool"])
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


def _waiting_for(demand: Mapping[str, Demand]) -> Iterator[GaugeMetricFamily]:
    whose = "that would run if the pool had more nodes."
    for what, words in (
        ("jobs", f"Pending jobs, or tasks of arrays, {whose}"),
        ("nodes", f"Nodes that the pending jobs ask for {whose}"),
        ("cpus", f"CPUs that the pending jobs ask for {whose}"),
        ("gpus", f"GPUs that the pending jobs ask for {whose}"),
    ):
        family = GaugeMetricFamily(f"slurm_extender_pool_pending_{what}", words, labels=["pool"])
        for pool, waits in demand.items():
            family.add_metric([pool], getattr(waits, what))
        yield family


def _counted(
    name: str, words: str, label: str, values: Iterable[str], counts: Mapping[Any, int]
) -> GaugeMetricFamily:
    """Returns a metric with a count for each value of its label."""
    family = GaugeMetricFamily(name, words, labels=[label])
    for value in values:
        family.add_metric([value], counts.get(value, 0))
    return family
