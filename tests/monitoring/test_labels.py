"""Tests of the label values in alerts and dashboards: the code can set each value."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from deploy.monitoring.dashboards import DASHBOARDS
from deploy.monitoring.objectives import OBJECTIVES
from deploy.monitoring.rules import GROUPS
from extender.audit.compare import FindingKind
from extender.execution import job_id_check
from extender.hooks.route import GateAnswer
from extender.kube_scheduler import preemption_check
from extender.leader import leader
from extender.node_sync.drains import DrainCause
from extender.node_view import view_updater
from extender.policy.current import CurrentPolicy
from extender.pools.current import CurrentPools
from extender.record.states import State
from extender.telemetry import Telemetry
from extender.telemetry.capacity import NodeState, Share
from extender.telemetry.waiting import WaitsFor
from kubernetes_client.errors import OUTAGE as KUBERNETES
from node_agent import agent
from slurm_client.errors import BAD_TOKEN
from slurm_client.errors import OUTAGE as SLURM

_MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"')
_COMPONENTS = {
    *(SLURM, BAD_TOKEN, KUBERNETES, job_id_check.PART, leader._LOST_KEYS, leader._THROTTLED),
    *(CurrentPolicy(None).part, CurrentPools(None).part, preemption_check.PART),
    view_updater.MEMORY,
    *("guard", agent._OTHERS, agent._NATIVE, agent._PROGRAMS, agent._NUMBERS),
}
VALUES: dict[str, set[str]] = {
    "answer": {*GateAnswer},
    "cause": {*DrainCause},
    "cluster": {"$cluster"},
    "component": _COMPONENTS,
    "error_type": {"no_error"},  # set by kube-apiserver, see test_real_metrics
    "kind": {*FindingKind},
    "le": {str(each.seconds) for each in OBJECTIVES},
    "listener": {"admission"},  # tests/listeners tests these values
    "name": {".+[.]slurm-extender[.]io"},
    "namespace": {"$namespace"},
    "outcome": {"done"},
    "state": {*State, *NodeState, *Share},
    "status": {"200", "5.."},
    "verb": {"mutate", "validate", "every-pod"},
    "waits_for": {*WaitsFor},
    "why": {"TLS handshake failed"},
}


def expressions() -> Iterator[str]:
    yield from (rule.expr for group in GROUPS for rule in group.rules)
    yield from (expr for dashboard in DASHBOARDS for expr in dashboard.expressions)


@pytest.mark.parametrize("expr", sorted(set(expressions())))
def test_selected_label_values_exist(expr: str) -> None:
    for label, text in _MATCHER.findall(expr):
        known = VALUES[label]
        assert text in known or {*text.split("|")} <= known, f"{label}={text}"


def test_thresholds_are_written_like_the_buckets_of_the_metrics() -> None:
    registry = Telemetry().registry
    for each in OBJECTIVES:
        bucket = {"le": str(each.seconds)}
        assert registry.get_sample_value(f"{each.metric}_bucket", bucket) == 0
