"""Logs and metrics of placeholders, adopted Pods, effects and evictions while this replica leads."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from extender.audit.compare import Finding, FindingKind
from extender.explain.sentences import sentence
from extender.record.events import Effect, EvictPod, Failure
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.telemetry import catalogue
from extender.telemetry.durations import Durations
from extender.telemetry.leader_states import LeaderStates, Sources
from extender.turns.eviction_limiter import EvictionLimiter
from extender.unmanaged.adoption import Adopted, Stage
from service.health import Health
from service.metrics import child
from wellknown.log_fields import PodName, about

log = structlog.get_logger()

_LOUD = frozenset({State.EVICTING, State.REPLACING, State.INVALID})
_QUIET = frozenset({State.SEEN, State.SUBMITTING, State.DONE})


class PlacementTelemetry:
    """Observes the ledger, the dispatcher, the audit and the controller of nodes. If health has logged
    an outage, the failed effects of the outage are not logged again."""

    def __init__(self, registry: CollectorRegistry, unix_now: Callable[[], float] = time.time) -> None:
        self.health = Health()
        self._unix_now = unix_now
        self._durations = Durations()
        self._transitions = catalogue.TRANSITIONS.counter(registry)
        self._placement = catalogue.PLACEMENT.histogram(registry)
        self._handling = catalogue.HANDLING.histogram(registry)
        self._eviction = catalogue.EVICTION.histogram(registry)
        self._effects = catalogue.EFFECTS.histogram(registry)
        self._evictions = catalogue.EVICTIONS.counter(registry)
        self._throttled = catalogue.THROTTLED.gauge(registry)
        self._lost = catalogue.JOBS_LOST.counter(registry)
        self._findings = catalogue.FINDINGS.gauge(registry)
        self._audited = catalogue.AUDITED.gauge(registry)
        self._leads = catalogue.LEADING.gauge(registry)
        self._set_findings(())
        for state in State:  # starts at 0, so that Prometheus also counts the first transition
            child(self._transitions, state)
        self._states = LeaderStates()
        registry.register(self._states)

    def observe(self, before: Placeholder | None, after: Placeholder) -> None:
        """Counts and logs a placeholder that entered another state, or whose job Slurm has lost."""
        if after.has_lost_job and not (before is not None and before.has_lost_job):
            self._lost.inc()
        if before is not None and before.state is after.state:
            return
        child(self._transitions, after.state).inc()
        self._measure(before, after)
        if after.state is State.EVICTING and after.cause is not None:
            self._evictions.labels(after.cause.reason).inc()
        tell = log.warning if after.state in _LOUD else log.info
        found_bound = before is None and after.state is State.BOUND  # a new leader finds very many
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
            why=sentence(after.cause) if after.cause else None,
        )

    def _measure(self, before: Placeholder | None, after: Placeholder) -> None:
        self._durations.note_eviction(before, after)
        handled = self._durations.handled(before, after)
        if handled is not None:
            self._handling.observe(handled)
            self._placement.observe(after.since - after.first_seen)
            self._states.bound(after)

    def throttled(self, eviction_limiter: EvictionLimiter, record: Placeholder | None) -> None:
        """Notes that the number of delayed evictions has changed. `record` is the placeholder of a new
        delayed eviction, if any."""
        self._throttled.set(eviction_limiter.held)
        if record is not None:
            log.warning(
                "eviction throttled",
                **about(record.workload, record.job.id),
                why=sentence(record.evicted_for) if record.evicted_for else "a job without its Pod",
            )

    def audited(self, findings: Iterable[Finding]) -> None:
        """Counts the differences between Slurm and Kubernetes, and notes the time of the audit."""
        self._set_findings(findings)
        self._audited.set(self._unix_now())

    def _set_findings(self, findings: Iterable[Finding]) -> None:
        tally = Counter(finding.kind for finding in findings)
        for kind in FindingKind:
            self._findings.labels(kind).set(tally[kind])

    def done(self, effect: Effect, seconds: float) -> None:
        """Measures a successful effect."""
        child(self._effects, type(effect).__name__, "done").observe(seconds)
        if isinstance(effect, EvictPod):
            took = self._durations.evicted(effect.uid)
            if took is not None:
                self._eviction.observe(took)

    def failed(
        self, effect: Effect, seconds: float, failure: Failure, about_it: Mapping[str, Any]
    ) -> None:
        """Measures a failed effect. Logs the failure, unless health has logged the outage."""
        outcome, name = failure.remedy.name.lower(), type(effect).__name__
        child(self._effects, name, outcome).observe(seconds)
        tell, error = self.health.news(failure.problem, log.info), failure.inner or failure.message
        tell("effect failed", effect=name, **about_it, outcome=outcome, error=error)

    def event_failed(self, event: Mapping[str, Any], failure: Failure) -> None:
        """Logs an Event about a Pod that the extender could not create."""
        tell = self.health.news(failure.problem, log.warning)
        pod, name = PodName.of(event["involvedObject"]), event["metadata"]["name"]
        tell("Event not made", **about(pod), name=name, error=failure.inner)

    def adopted(self, record: Adopted) -> None:
        """Logs an adopted Pod whose job entered another stage."""
        adopted_pod = record.adopted_pod
        tell = log.info if record.stage in (Stage.WAITING, Stage.RUNNING) else log.warning
        tell(
            "adopted Pod", stage=record.stage, **about(adopted_pod, record.job_id), node=adopted_pod.node
        )

    async def count_pods(self) -> None:
        """Counts the Pods for the next scrape."""
        await self._states.count_pods()

    @contextmanager
    def leading(self, sources: Sources) -> Iterator[None]:
        """Context in which this replica leads. In this context, the metrics count the sources."""
        self._states.count(sources)
        self._leads.set(1)
        self._audited.set(self._unix_now())
        try:
            yield
        finally:
            self._states.count()
            self._durations.forget()
            for gauge in (self._leads, self._throttled, self._audited):
                gauge.set(0)
            self._set_findings(())
