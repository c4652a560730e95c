"""Reports about a configuration: log events, metrics, and an Event on slurmctld's Pod."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry

from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes
from service.metrics import Metric
from slurm_cluster.configuration.configurer import Outcome, Verdict
from slurm_cluster.configuration.plan import Plan

log = structlog.get_logger()

_COMPONENT: Final = "slurm-cluster"
_LONGEST_MESSAGE: Final = 1000
_LONGEST_NAME: Final = 200
_ONCE_IN_S: Final = 1800
_REASONS: Final = {
    Verdict.APPLIED: "ConfigurationApplied",
    Verdict.REFUSED: "ConfigurationRefused",
    Verdict.HELD: "ConfigurationHeld",
}
ACCEPTED: Final = Metric(
    "slurm_cluster_configuration_current",
    "gauge",
    "1 if slurmctld has the wanted configuration, 0 if slurmctld has the last valid configuration",
    "Does Slurm have the wanted configuration?",
)
VERDICTS: Final = Metric(
    "slurm_cluster_configurations_total",
    "counter",
    "Wanted configurations by verdict",
    "How often is a configuration refused?",
    ("verdict",),
)
UNSERVED: Final = Metric(
    "slurm_cluster_unserved_seconds",
    "gauge",
    "Time without an answer from slurmctld at the last change",
    "How long is Slurm unavailable during a change of the configuration?",
)


@dataclass(frozen=True, slots=True)
class PodName:
    """slurmctld's Pod, the subject of Events."""

    namespace: str
    name: str
    uid: str


NO_POD: Final = PodName("", "", "")


class Notices:
    """Reports each outcome once, when the outcome changes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._logged: tuple[Verdict, str] | None = None
        self._current = ACCEPTED.gauge(registry)
        self._verdicts = VERDICTS.counter(registry)
        self._unserved = UNSERVED.gauge(registry)

    def plan(self, plan: Plan) -> None:
        """Logs a plan before the plan is carried out."""
        log.info("plan", need=plan.need.name, lines=plan.lines())

    def outcome(self, outcome: Outcome) -> bool:
        """Logs and counts a new outcome, and returns True. Returns False for the outcome CURRENT, and
        for the same outcome as in the last call."""
        self._current.set(outcome.verdict in (Verdict.CURRENT, Verdict.APPLIED))
        entry = (outcome.verdict, outcome.words)
        if outcome.verdict is Verdict.CURRENT:
            self._logged = None
            return False
        if entry == self._logged:
            return False
        self._logged = entry
        self._verdicts.labels(outcome.verdict.value).inc()
        if outcome.verdict is Verdict.APPLIED:
            self._unserved.set(outcome.unserved_s)
        tell = log.error if outcome.verdict is Verdict.REFUSED else log.info
        seconds = round(outcome.unserved_s, 1)
        tell("configuration", verdict=outcome.verdict.value, words=outcome.words, unserved_s=seconds)
        return True


async def make_event(kubernetes: Kubernetes, pod: PodName, outcome: Outcome) -> None:
    """Creates the Event of an outcome. If kube-apiserver returns an error, only logs the error."""
    try:
        await kubernetes.create_event(pod.namespace, event(pod, outcome, datetime.now(UTC)))
    except KubernetesError as error:
        log.warning("an Event was not made", error=str(error))


def event(pod: PodName, outcome: Outcome, now: datetime) -> Mapping[str, Any]:
    """Returns the Event. In the same half hour, equal outcomes give the same Event."""
    identity = f"{pod.uid}{outcome.verdict}{outcome.words}{int(now.timestamp()) // _ONCE_IN_S}"
    digest = blake2b(identity.encode(), digest_size=8).hexdigest()
    stamp = now.isoformat(timespec="seconds").replace("+00:00", "Z")
    named = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.name[:_LONGEST_NAME]}.{digest}", "namespace": pod.namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **named},
        "type": "Warning" if outcome.verdict is Verdict.REFUSED else "Normal",
        "reason": _REASONS[outcome.verdict],
        "message": outcome.words[:_LONGEST_MESSAGE],
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "reportingInstance": pod.name,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
