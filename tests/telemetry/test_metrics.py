"""Tests of the extender's metrics: the value of each metric, and the table of all metrics."""

import asyncio
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from deploy.local.layout import CHECKOUT
from extender.audit.compare import Finding, FindingKind
from extender.explain.pending_reasons import PENDING_REASONS
from extender.jobs.claim import Charged, charged_of
from extender.jobs.phase import Phase
from extender.jobs.verdict import Ownership, Verdict
from extender.node_view.slurm_nodes import Reading
from extender.pages import renewed
from extender.placement.nodes.rejecting_nodes import Closure
from extender.pod_request.constraints.node_constraints import Taint
from extender.record.events import EvictPod
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.telemetry import Telemetry
from extender.telemetry.capacity import Capacity, CapacityNow, NodeState, Share
from extender.telemetry.catalogue import METRICS
from extender.telemetry.durations import Durations
from extender.telemetry.leader_states import Sources
from extender.telemetry.waiting import WaitsFor, waits_for
from node_agent import metrics as node_agent
from service import cooperative
from slurm_client.job_state import JobState
from slurm_client.model import Job, Node
from tests.builders import PREFIX, cause_of, changed, kube_node, placeholder_of, pod, view
from tests.service.turns import turns_of_others
from tests.verbs.callers import Listeners
from wellknown.names import Reason

CREATED = datetime(2026, 11, 21, 8, tzinfo=UTC).timestamp()
"""Creation time of Pods from tests.builders."""


def value(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(name, labels)


# The table


async def test_replica_exposes_exactly_the_metrics_of_the_table() -> None:
    page = (await Listeners().metrics.get("/metrics")).text
    told = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    own = {name: kind for name, kind in told.items() if not name.startswith(("process_", "http_"))}
    own = {name: kind for name, kind in own.items() if not name.endswith("_created")}
    assert own == {metric.name: metric.kind for metric in METRICS}


UNBOUNDED = {
    *("pod", "namespace", "node", "uid", "job", "user", "account"),
    *("pod_name", "pod_namespace", "job_id"),
}
OF_EACH_POD = {"slurm_extender_job_info", "node_agent_device_holder"}
"""Metrics with a series for each Pod. The first metric exists only if a setting requests the metric. The
second metric has at most a single series for each device of a Node."""
OF_TARGETS = {
    *("job", "instance", "namespace", "pod", "container", "node"),
    *("cluster", "service", "endpoint"),
}
"""Labels that Prometheus adds to the metrics of each target. If a metric had such a label, Prometheus
would rename the label."""


@pytest.mark.parametrize("metric", [*METRICS, *node_agent.METRICS], ids=lambda metric: metric.name)
def test_names_and_labels_follow_the_conventions_of_prometheus(metric: Any) -> None:
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.kind != "histogram" or metric.name.endswith("_seconds")
    assert not re.search(r"_(ms|minutes|mb|percent|count|sum|bucket)$", metric.name)
    assert metric.words.endswith(".")
    assert metric.question.endswith(("?", "."))
    bounded = UNBOUNDED.isdisjoint(metric.labels)  # no label gets more values in a larger cluster
    assert bounded == (metric.name not in OF_EACH_POD)
    assert OF_TARGETS.isdisjoint(metric.labels)


def test_page_has_the_table_of_metrics() -> None:
    page = (CHECKOUT / "docs/reference/metrics.md").read_text()
    assert renewed("docs/reference/metrics.md", page) == page, "run `make docs`"


# Reasons of waiting


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        (State.SEEN, "", WaitsFor.TURN),
        (State.SEEN, Reason.WAITING_FOR_SUBMIT_SLOT, WaitsFor.TURN),
        (State.SEEN, Reason.CLAIM_NOT_READY, WaitsFor.KUBERNETES),
        (State.SUBMITTING, Reason.SLURM_BUSY, WaitsFor.ANSWER),
        (State.QUEUED, "", WaitsFor.RESOURCES),
        (State.QUEUED, "Resources", WaitsFor.RESOURCES),
        (State.QUEUED, "QOSMaxJobsPerUserLimit", WaitsFor.OWNER),
        (State.ALLOCATED, "", WaitsFor.BINDING),
        (State.INVALID, Reason.REJECTED_BY_SLURM, WaitsFor.AUTHOR),
        (State.BOUND, Reason.SLURM_JOB_LOST, None),
        (State.EVICTING, Reason.SLURM_JOB_PREEMPTED, None),
    ],
)
def test_each_waiting_pod_has_one_reason(state: State, reason: str, expected: WaitsFor | None) -> None:
    assert waits_for(state, reason) is expected


@pytest.mark.parametrize("row", PENDING_REASONS, ids=lambda row: row.name)
def test_slurm_reason_separates_limits_of_owners_from_lack_of_resources(row: Any) -> None:
    assert waits_for(State.QUEUED, row.name) is (
        WaitsFor.OWNER if row.of_its_owner else WaitsFor.RESOURCES
    )


def waiting(name: str, created: str, state: State, reason: str = "") -> Placeholder:
    cause = cause_of(reason) if reason else None
    return placeholder_of(pod(name=name)._replace(created=created), state, cause=cause)


async def test_waiting_pods_are_counted_with_the_age_of_the_oldest() -> None:
    pods = (
        waiting("a", "2026-11-21T08:00:05Z", State.QUEUED, "Resources"),
        waiting("b", "2026-11-21T08:00:02Z", State.QUEUED),
        waiting("c", "2026-11-21T07:00:00Z", State.BOUND),
        waiting("d", "2026-11-21T08:00:00Z", State.SEEN, Reason.CLAIM_NOT_READY),
    )
    telemetry = Telemetry()
    with telemetry.placement.leading(Sources(lambda: pods)):
        await telemetry.placement.count_pods()
        assert value(telemetry, "slurm_extender_waiting_pods", waits_for="resources") == 2
        assert value(telemetry, "slurm_extender_waiting_pods", waits_for="kubernetes") == 1
        assert value(telemetry, "slurm_extender_waiting_pods", waits_for="turn") == 0
        oldest = "slurm_extender_waiting_oldest_creation_timestamp_seconds"
        assert value(telemetry, oldest, waits_for="resources") == CREATED + 2
        assert value(telemetry, oldest, waits_for="turn") is None
        assert value(telemetry, "slurm_extender_kept_back", reason="ClaimNotReady") == 1
        assert value(telemetry, "slurm_extender_placeholders", state="Bound") == 1
    assert value(telemetry, "slurm_extender_waiting_pods", waits_for="resources") == 0
    assert value(telemetry, oldest, waits_for="resources") is None


async def test_count_of_many_pods_yields_to_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperative, "_TURN_S", 0.0)
    pods, telemetry = [waiting("a", "", State.QUEUED)] * 100, Telemetry()
    with telemetry.placement.leading(Sources(lambda: pods)):
        assert await turns_of_others(telemetry.placement.count_pods()) >= 99


async def test_count_that_ends_after_the_lead_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperative, "_TURN_S", 0.0)
    pods, telemetry = [waiting("a", "", State.QUEUED)] * 10, Telemetry()
    with telemetry.placement.leading(Sources(lambda: pods)):
        counting = asyncio.ensure_future(telemetry.placement.count_pods())
        await asyncio.sleep(0)
        assert not counting.done()
    await counting
    assert value(telemetry, "slurm_extender_waiting_pods", waits_for="resources") == 0


# Durations


def moved(record: Placeholder, *, to: State, at: float) -> Placeholder:
    return record._replace(state=to, since=at)


def observe(telemetry: Telemetry, *moves: tuple[State, float]) -> Placeholder:
    """Reports the moves of a Pod through states: each move has a state and a time. Returns the Pod in
    the last state."""
    before: Placeholder | None = None
    after = placeholder_of(pod())
    for state, at in moves:
        after = moved(after, to=state, at=at)
        telemetry.placement.observe(before, after)
        before = after
    return after


def test_waits_for_a_submit_slot_and_in_the_queue_are_no_handling() -> None:
    telemetry = Telemetry()
    observe(
        telemetry,
        *((State.SEEN, 0.0), (State.SUBMITTING, 10.0), (State.QUEUED, 10.5), (State.ALLOCATED, 100.0)),
        (State.BOUND, 100.25),
    )
    assert value(telemetry, "slurm_extender_placement_seconds_sum") == 100.25
    assert value(telemetry, "slurm_extender_placement_handling_seconds_sum") == pytest.approx(0.75)


def test_handling_time_of_a_deleted_pod_is_forgotten() -> None:
    durations, record = Durations(), placeholder_of(pod())
    seen = moved(record, to=State.SEEN, at=0.0)
    asked = moved(record, to=State.SUBMITTING, at=5.0)
    gone = moved(record, to=State.RELEASING, at=6.0)
    again = moved(record, to=State.BOUND, at=7.0)
    assert durations.handled(None, seen) is None
    assert durations.handled(seen, asked) is None
    assert durations.handled(asked, gone) is None
    assert durations.handled(asked, again) == 7.0  # the time before the deletion is forgotten


def test_pod_bound_before_this_leader_has_no_handling_time() -> None:
    telemetry = Telemetry()
    observe(telemetry, (State.BOUND, 50.0))
    assert value(telemetry, "slurm_extender_placement_handling_seconds_count") == 0


def test_eviction_is_measured_once_from_its_cause_to_the_deletion() -> None:
    now = [100.0]
    durations, record = Durations(lambda: now[0]), placeholder_of(pod(), State.BOUND)
    durations.note_eviction(record, moved(record, to=State.EVICTING, at=1.0))
    now[0] = 103.0
    assert durations.evicted(record.uid) == 3.0
    assert durations.evicted(record.uid) is None
    durations.note_eviction(record, moved(record, to=State.EVICTING, at=2.0))
    durations.note_eviction(moved(record, to=State.EVICTING, at=2.0), record)  # no longer evicted
    assert durations.evicted(record.uid) is None


def test_deletion_of_an_evicted_pod_is_counted() -> None:
    telemetry = Telemetry()
    record = observe(telemetry, (State.BOUND, 0.0), (State.EVICTING, 1.0))
    telemetry.placement.done(EvictPod(record.uid, pod(), cause_of("x")), 0.01)
    assert value(telemetry, "slurm_extender_eviction_seconds_count") == 1


# Lost jobs and audits


def test_job_lost_by_slurm_is_counted_once() -> None:
    telemetry, record = Telemetry(), placeholder_of(pod(), State.BOUND)
    lost = record.with_phase(Phase.ASKED, 0.0)
    telemetry.placement.observe(record, lost)
    telemetry.placement.observe(lost, moved(lost, to=State.EVICTING, at=1.0))
    assert value(telemetry, "slurm_extender_jobs_lost_total") == 1
    assert value(telemetry, "slurm_extender_placeholder_transitions_total", state="Bound") == 0


def test_time_of_the_last_audit_is_exposed_while_this_replica_leads() -> None:
    telemetry = Telemetry()
    name = "slurm_extender_audit_last_success_timestamp_seconds"
    with telemetry.placement.leading(Sources()):
        began = value(telemetry, name)
        telemetry.placement.audited([Finding(FindingKind.WRONG_NODE, cause_of("x"), "")])
        assert (value(telemetry, name) or 0) >= (began or 0) > 1_700_000_000
        assert value(telemetry, "slurm_extender_audit_findings", kind="WrongNode") == 1
    assert value(telemetry, name) == 0
    assert value(telemetry, "slurm_extender_audit_findings", kind="WrongNode") == 0


# Capacity


def slurm_node(name: str, *states: str, allocated: int = 0, **given: Any) -> Node:
    has: dict[str, Any] = {"cpus": 8, "memory_mb": 1000, "gres": "gpu:h100:4"} | given
    return Node(name, frozenset(states), cpus_allocated=allocated, **has)


def counted(*nodes: Node, known: Iterable[str] = ("n1", "n2", "n3", "n4")) -> Capacity:
    return Capacity.of(nodes, view(*(kube_node(name) for name in known)))


def test_resources_are_allocated_idle_or_closed() -> None:
    found = counted(
        slurm_node("n1", "IDLE"),
        slurm_node("n2", "MIXED", allocated=3, gres_used="gpu:h100:1(IDX:0)", memory_allocated_mb=400),
        slurm_node("n3", "ALLOCATED", allocated=8),
        slurm_node("n4", "MIXED", "DRAIN", allocated=2),
    )
    assert found.nodes == dict.fromkeys(NodeState, 1)
    assert found.cpus == {Share.ALLOCATED: 13, Share.IDLE: 13, Share.CLOSED: 6}
    assert found.gpus == {Share.ALLOCATED: 1, Share.IDLE: 11, Share.CLOSED: 4}
    assert found.memory_bytes[Share.ALLOCATED] == 400 * 1024 * 1024


def test_slurm_nodes_without_a_node_are_not_counted() -> None:
    assert counted(slurm_node("n1", "IDLE"), slurm_node("native", "IDLE")).nodes == {NodeState.IDLE: 1}


def test_nodes_whose_prolog_failed_are_counted() -> None:
    failed = slurm_node("n1", "IDLE", "DRAIN", reason="Prolog error")
    ours = slurm_node("n2", "IDLE", "DRAIN", reason="slurm-extender: cordoned in Kubernetes")
    assert counted(failed, ours).prolog_errors == 1


def test_node_agents_are_counted_on_nodes_that_are_ready() -> None:
    away = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    taints = [(), *((Taint(key, "", "NoSchedule"),) for key in away)]
    nodes = [replace(kube_node(f"n{n}"), taints=each, has_agent=True) for n, each in enumerate(taints)]
    assert Capacity.of((), view(*nodes, kube_node("without"))).agents == 1


def test_capacity_of_a_reading_is_counted_once() -> None:
    readings = [Reading((slurm_node("n1", "IDLE"),), 0.0, 0.0)]
    views = iter([view(kube_node("n1")), view()])
    now = CapacityNow(lambda: readings[-1], lambda: next(views))
    assert now() is now()
    readings.append(Reading((), 1.0, 0.0))
    assert now().nodes == {}


def test_nodes_that_reject_pods_are_counted_once_for_each_kind() -> None:
    telemetry = Telemetry()
    closed = [("n1", True), ("n1", False), ("n2", False), ("n2", False)]
    closures = [Closure(node, to_all, 60.0, cause_of("x")) for node, to_all in closed]
    with telemetry.placement.leading(Sources(closures=lambda: closures)):
        rejecting = "slurm_extender_pods_rejecting_nodes"
        assert value(telemetry, rejecting, closed_to="all") == 1
        assert value(telemetry, rejecting, closed_to="similar") == 2


# The job of each Pod


JOB_INFO = "slurm_extender_job_info"


async def job_info(tells_jobs: bool, *records: Placeholder) -> list[dict[str, str]]:
    telemetry = Telemetry()
    with telemetry.placement.leading(Sources(lambda: records, reports_jobs=tells_jobs)):
        await telemetry.placement.count_pods()
        families = telemetry.registry.collect()
        return [each.labels for of in families if of.name == JOB_INFO for each in of.samples]


def bound(name: str = "p", state: State = State.BOUND, **of_job: Any) -> Placeholder:
    request = {f"{PREFIX}partition": "main", f"{PREFIX}account": "asked"}
    record = placeholder_of(changed(pod(name=name, annotations=request), node="n1"), state)
    return record.with_job(id=40_000_007, **of_job)


async def test_each_bound_pod_has_the_user_and_account_of_its_job() -> None:
    read = Verdict(Ownership.OURS, charged=Charged("alice", "ml", "gpu"))
    leaving = bound("q", State.EVICTING, verdict=read)
    assert await job_info(True, bound(verdict=read), leaving, bound("w", State.ALLOCATED)) == [
        {
            "job_id": "40000007",
            "pod_namespace": "default",
            "pod_name": name,
            "user": "alice",
            "account": "ml",
            "partition": "gpu",
        }
        for name in ("p", "q")
    ]


async def test_series_of_an_unread_job_has_the_request_of_its_pod() -> None:
    (labels,) = await job_info(True, bound())
    assert [labels[name] for name in ("user", "account", "partition")] == ["", "asked", "main"]


async def test_no_pod_has_a_series_without_the_setting() -> None:
    assert await job_info(False, bound()) == []


def test_user_without_a_name_is_a_number() -> None:
    assert charged_of(Job(1, JobState("RUNNING"), user_id=1001)).user == "1001"
