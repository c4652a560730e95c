"""Logs and metrics. It listens: what decides knows nothing of it."""

from __future__ import annotations

import logging
import sys
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from time import perf_counter
from typing import Any, TypeVar

import orjson
import structlog
from fastapi import APIRouter, FastAPI, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from prometheus_fastapi_instrumentator import Instrumentator
from prometheus_fastapi_instrumentator.metrics import default as default_metrics
from structlog.typing import EventDict

from extender.health import Health
from extender.placement.adoption import Adopted, Stage
from extender.placement.audit import Finding, Kind
from extender.placement.breaker import Breaker
from extender.placement.events import Effect, Failure
from extender.placement.kept_back import REASONS
from extender.placement.nodes import Tally as NodeTally
from extender.placement.nodes import Why
from extender.placement.placeholder import Placeholder, State
from extender.seldom import Seldom

log = structlog.get_logger()

_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
# Finer up to 10 ms: a budget of 5 ms is to be told from half of it, and from twice as much.
_FAST = (
    *(0.00025, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01),
    *(0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
_LONGEST_TEXT = 8192
_Family = TypeVar("_Family", Counter, Histogram)
_LOUD = frozenset({State.EVICTING, State.REPLACING, State.REFUSED})
_QUIET = frozenset({State.SEEN, State.SUBMITTING, State.DONE})


def configure_logging(level: str) -> None:
    """One JSON object a line on standard error; a Pod is named by `pod` and `uid`, a job by `job`."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _timed,
            structlog.processors.format_exc_info,
            _short,
            structlog.processors.JSONRenderer(serializer=orjson.dumps, option=orjson.OPT_UTC_Z),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level)),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )


def _timed(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Says when it is. The text is for orjson to write, in half of Python's time."""
    event["timestamp"] = datetime.now(UTC)
    return event


def _short(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Cuts long texts: other systems and strangers write into the log by what they answer and send."""
    for name, value in event.items():
        if isinstance(value, str) and len(value) > _LONGEST_TEXT:
            event[name] = f"{value[:_LONGEST_TEXT]}... ({len(value)} characters)"
    return event


@lru_cache(maxsize=256)
def _child(family: _Family, *labels: str) -> _Family:
    """Returns a metric's child. `labels()` makes its texts anew, some twenty times for every Pod."""
    return family.labels(*labels)


class Timing:
    """An effect being carried out; `result` is set when it is done."""

    result: Any = None


class Telemetry:
    """The project's own metrics, in one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        requests = default_metrics(registry=self.registry, latency_lowr_buckets=_SECONDS)
        assert requests is not None  # None is for metrics that are there already: the registry is new
        self._requests = requests
        self._moves = Counter(
            "slurm_extender_moves",
            "Placeholders that came into a state.",
            ["state"],
            registry=self.registry,
        )
        self._placement = Histogram(
            "slurm_extender_placement_seconds",
            "From a Pod first seen to its binding seen.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._effects = Histogram(
            "slurm_extender_effect_seconds",
            "Effects carried out on Slurm and Kubernetes, by how they ended.",
            ["effect", "outcome"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._verbs = Histogram(
            "slurm_extender_verb_seconds",
            "Requests of kube-scheduler and kube-apiserver answered, by HTTP status.",
            ["verb", "status"],
            buckets=_FAST,
            registry=self.registry,
        )
        self._evictions = Counter(
            "slurm_extender_evictions",
            "Pods deleted because their job ended, by why it did.",
            ["reason"],
            registry=self.registry,
        )

        self._held_back = Gauge(
            "slurm_extender_breaker_held_back",
            "Deletions that the breaker holds back: more than may be in a minute.",
            registry=self.registry,
        )
        self._findings = Gauge(
            "slurm_extender_audit_findings",
            "Differences between both systems that the leader's last audit found and confirmed.",
            ["kind"],
            registry=self.registry,
        )
        self.audited(())
        self._leads = Gauge(
            "slurm_extender_leading",
            "Whether this replica leads, which one does at a time.",
            registry=self.registry,
        )
        self._rest_calls = Counter(
            "slurm_extender_slurmrestd_calls",
            "Requests to slurmrestd; `GET jobs/state` is about all jobs.",
            ["call"],
            registry=self.registry,
        )
        self._rest_bytes = Counter(
            "slurm_extender_slurmrestd_bytes",
            "What these requests (sent) and the bodies of their replies (received) came to.",
            ["call", "direction"],
            registry=self.registry,
        )
        self._malformed = Counter(
            "slurm_extender_malformed_entries",
            "Entries of slurmrestd's replies that could not be read and were passed over, by the call.",
            ["call"],
            registry=self.registry,
        )
        self._refusals = Counter(
            "slurm_extender_refusals",
            "Requests and connections that a listener refused or ended, by why.",
            ["listener", "why"],
            registry=self.registry,
        )
        self._told: dict[tuple[str, str], Seldom] = {}
        self._malformed_told = Seldom("an entry of Slurm's answer cannot be read, and is passed over")
        self._policy = Gauge(
            "slurm_extender_policy_good",
            "Whether the policy's file is good as it is now; otherwise the last good one counts.",
            registry=self.registry,
        )
        self._policy.set(1)
        self._states = _States()
        self.registry.register(self._states)

    def observe(self, before: Placeholder | None, after: Placeholder) -> None:
        """Takes note of a placeholder that came into another state."""
        _child(self._moves, after.state).inc()
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
            pod=f"{after.pod.namespace}/{after.pod.name}",
            uid=after.pod.uid,
            job=after.job_id,
            node=after.allocation.node if after.allocation else None,
            why=after.cause.message if after.cause else None,
        )

    def held_back(self, breaker: Breaker, record: Placeholder | None) -> None:
        """Takes note of a change in what the breaker holds back; of the record that is one more."""
        self._held_back.set(breaker.held)
        if record is not None:
            log.warning(
                "deletion held back",
                pod=f"{record.pod.namespace}/{record.pod.name}",
                uid=record.pod.uid,
                job=record.job_id,
                why=record.evicted_for.message if record.evicted_for else "a job without its Pod",
            )

    def audited(self, findings: Iterable[Finding]) -> None:
        """Takes note of all differences between both systems."""
        tally = Tally(finding.kind for finding in findings)
        for kind in Kind:
            self._findings.labels(kind).set(tally[kind])

    @contextmanager
    def timing(self, effect: Effect) -> Iterator[Timing]:
        """Measures an effect; its failure, where it has one, is logged."""
        timing, start = Timing(), perf_counter()
        yield timing
        failure = timing.result if isinstance(timing.result, Failure) else None
        outcome = failure.remedy.name.lower() if failure else "done"
        name = type(effect).__name__
        _child(self._effects, name, outcome).observe(perf_counter() - start)
        if failure is not None:
            log.info(
                "effect failed",
                effect=name,
                uid=effect.uid,
                outcome=outcome,
                error=failure.inner or failure.message,
            )

    def answered(self, path: str, status: HTTPStatus, seconds: float) -> None:
        """Takes note of a request to one of the verbs."""
        verb = path.rpartition("/")[2]
        _child(self._verbs, verb, str(status.value)).observe(seconds)

    def follow(self, health: Health) -> None:
        """Tells from now on which parts are in trouble."""
        self.registry.register(_Troubles(health))

    def policy_read(self, good: bool) -> None:
        """Takes note of whether the policy's file is good."""
        self._policy.set(good)

    def asked_slurm(self, call: str, sent: int, received: int) -> None:
        """Takes note of a request to slurmrestd and its bytes."""
        _child(self._rest_calls, call).inc()
        _child(self._rest_bytes, call, "sent").inc(sent)
        _child(self._rest_bytes, call, "received").inc(received)

    def malformed(self, call: str, why: str) -> None:
        """Takes note of an entry in a reply of slurmrestd's that cannot be read."""
        _child(self._malformed, call).inc()
        self._malformed_told.says(call=call, why=why)

    def refused(self, listener: str, why: str) -> None:
        """Takes note of a connection or a request that a listener did not take."""
        _child(self._refusals, listener, why).inc()
        if (listener, why) not in self._told:
            self._told[listener, why] = Seldom("a listener refuses")
        self._told[listener, why].says(listener=listener, why=why)

    def instrument(self, application: FastAPI) -> None:
        """Measures the requests to an application of FastAPI."""
        instrumentator = Instrumentator(should_instrument_requests_inprogress=False)
        instrumentator.add(self._requests).instrument(application)

    def router(self) -> APIRouter:
        """Returns the route that Prometheus reads."""
        routes = APIRouter()

        @routes.get("/metrics")
        async def metrics() -> Response:
            return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)

        return routes

    def adopted(self, record: Adopted) -> None:
        """Takes note of a guest whose job came into another stage."""
        guest = record.guest
        tell = log.info if record.stage in (Stage.WAITING, Stage.RUNNING) else log.warning
        tell(
            "adopted Pod",
            stage=record.stage,
            pod=f"{guest.namespace}/{guest.name}",
            uid=guest.uid,
            job=record.job_id,
            node=guest.node,
        )

    @contextmanager
    def leading(
        self,
        placeholders: Callable[[], Iterable[Placeholder]],
        nodes: Callable[[], NodeTally],
        guests: Callable[[], Mapping[Stage, int]] = dict,
    ) -> Iterator[None]:
        """While it lasts, this replica leads and these are its placeholders, counted when asked for, the
        nodes that it keeps, and how many guests are in which stage."""
        self._states.placeholders, self._states.nodes = placeholders, nodes
        self._states.guests = guests
        self._leads.set(1)
        try:
            yield
        finally:
            self._states.placeholders, self._states.nodes = tuple, NodeTally
            self._states.guests = dict
            self._leads.set(0)
            self._held_back.set(0)
            self.audited(())


class _States(Collector):
    placeholders: Callable[[], Iterable[Placeholder]] = tuple
    nodes: Callable[[], NodeTally] = NodeTally
    guests: Callable[[], Mapping[Stage, int]] = dict

    def collect(self) -> Iterator[GaugeMetricFamily]:
        placeholders = tuple(self.placeholders())
        tally = Tally(p.state for p in placeholders)
        family = GaugeMetricFamily(
            "slurm_extender_placeholders", "Placeholders by state.", labels=["state"]
        )
        for state in State:
            family.add_metric([state], tally[state])
        yield family
        nodes = self.nodes()
        drained = GaugeMetricFamily(
            "slurm_extender_drained_nodes",
            "Slurm's nodes that are drained for what is wrong in Kubernetes, by what that is.",
            labels=["cause"],
        )
        for why in Why:
            drained.add_metric([why], nodes.drained.get(why, 0))
        yield drained
        yield GaugeMetricFamily(
            "slurm_extender_spared_nodes",
            "Nodes that are not ready, while they are too many for any more to be drained.",
            value=nodes.spared,
        )
        guests = self.guests()
        adopted = GaugeMetricFamily(
            "slurm_extender_adopted",
            "Pods that another scheduler bound to Slurm's nodes, by where the jobs for them stand.",
            labels=["stage"],
        )
        for stage in Stage:
            adopted.add_metric([stage], guests.get(stage, 0))
        yield adopted
        kept = Tally(p.cause.reason for p in placeholders if p.cause and p.state is State.SEEN)
        kept_back = GaugeMetricFamily(
            "slurm_extender_kept_back",
            "Pods for which no job is asked, since they could not use it, by what their condition says.",
            labels=["reason"],
        )
        for reason in sorted(REASONS):
            kept_back.add_metric([reason], kept[reason])
        yield kept_back
        without = sum(p.state is State.BOUND and p.cause is not None for p in placeholders)
        yield GaugeMetricFamily(
            "slurm_extender_pods_without_job",
            "Bound Pods whose job Slurm has lost, and whose next one does not run yet.",
            value=without,
        )


class _Troubles(Collector):
    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "slurm_extender_trouble", "Parts in trouble, which the log says in words.", labels=["part"]
        )
        for part, troubled in self._health.parts().items():
            family.add_metric([part], troubled)
        yield family
