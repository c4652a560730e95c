"""Tests of the demo: the demo reports only observed facts, and on a real cluster the demo observes every
step."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.local.demo.findings import (
    Findings,
    Verdict,
    difference,
    overcommitment,
    percentile,
    reason_difference,
)
from deploy.local.demo.pods import CONDITION, JOB_ID, Sighting
from deploy.local.demo.screen import event_line
from deploy.local.demo.slurm import NodeUse, QueuedJob, parse_nodes, parse_queue
from deploy.local.layout import CHECKOUT


def pod(node: str | None = "node-1", job_id: int | None = 7, reason: str | None = None) -> Sighting:
    conditions = [{"type": CONDITION, "status": "False", "reason": reason}] if reason else []
    annotations = {JOB_ID: str(job_id)} if job_id else {}
    manifest: dict[str, Any] = {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"nodeName": node} if node else {},
        "status": {"conditions": conditions},
    }
    bound = 10.025 if node else None
    return Sighting("p", cpus=4, gpus=2, created=10.0, bound=bound, manifest=manifest)


def job(state: str = "RUNNING", node: str = "node-1", reason: str = "None", **given: Any) -> QueuedJob:
    return QueuedJob(**{"id": 7, "name": "p@default", **given}, state=state, node=node, reason=reason)


def test_a_percentile_is_one_of_the_values() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    asked = (1, 20, 21, 50, 99, 100)
    assert [percentile(values, percent) for percent in asked] == [1, 1, 2, 3, 5, 5]


def test_p99_of_a_hundred_values_is_the_last_but_one() -> None:
    assert percentile(range(1, 101), 99) == 99


def test_percentile_of_no_values_is_none() -> None:
    assert percentile([], 50) is None


def test_pod_on_the_node_of_its_job_agrees_with_squeue() -> None:
    assert difference(pod(), {7: job()}) is None


@pytest.mark.parametrize(
    "queue",
    [
        {},
        {7: job(node="node-2")},
        {7: job(state="PENDING", node="")},
        {7: job(name="q@default")},
        {7: job(), 8: job(id=8)},
    ],
    ids=["no job", "elsewhere", "not running", "another's job", "two jobs"],
)
def test_pod_that_disagrees_with_squeue_is_a_difference(queue: dict[int, QueuedJob]) -> None:
    findings = Findings()
    findings.compare(pod(), queue)
    assert len(findings.differences) == 1
    assert findings.compared == {"p"}


def test_reason_on_a_pod_must_equal_the_reason_in_squeue() -> None:
    waiting = pod(node=None, reason="Resources")
    assert reason_difference(waiting, {7: job("PENDING", "", "Resources")}) is None
    assert reason_difference(waiting, {7: job("PENDING", "", "Priority")})
    assert reason_difference(waiting, {7: job()})
    assert reason_difference(waiting, {})


def test_overcommitment_of_a_node_is_found() -> None:
    users = [pod(), pod(node="node-2")]
    exact = NodeUse("node-1", cpus=8, cpus_used=7, gpus=4, gpus_used=3)
    assert overcommitment(exact, users, cpus=3, gpus=1) is None
    assert overcommitment(exact, users, cpus=4, gpus=1)
    assert overcommitment(exact, users, cpus=3, gpus=2)
    assert overcommitment(NodeUse("node-1", 8, 9, 4, 3), users)


def test_output_of_squeue_and_scontrol_is_read() -> None:
    assert parse_queue("7|p@default|PENDING||Resources\n8|native|RUNNING|node-[1-2]|None\n") == {
        7: job("PENDING", "", "Resources"),
        8: QueuedJob(8, "native", "RUNNING", "node-[1-2]", "None"),
    }
    node = {
        "name": "node-1",
        "cpus": 8,
        "alloc_cpus": 3,
        "gres": "gpu:h100:4,nic:2",
        "gres_used": "gpu:h100:1(IDX:0),nic:0",
    }
    assert parse_nodes(json.dumps({"nodes": [node]})) == [NodeUse("node-1", 8, 3, 4, 1)]


def test_each_event_of_a_pod_is_a_line() -> None:
    assert event_line(pod(node=None, job_id=None)) is None
    assert event_line(pod(node=None, reason="Priority")) == "p waits (job 7): Priority"
    assert event_line(pod()) == "p is bound to node-1 (job 7) after 25.0 ms"


def verdict(step: str, *, observed: bool) -> Verdict:
    return Verdict(step, f"{step} happens", observed, "what was seen")


def test_all_is_observed_if_every_step_was_and_nothing_differed() -> None:
    findings = Findings(verdicts=[verdict("a", observed=True)])
    assert findings.all_observed
    assert not Findings().all_observed
    findings.note("squeue says otherwise")
    assert not findings.all_observed


def test_a_step_that_was_not_observed_is_named() -> None:
    findings = Findings(verdicts=[verdict("a", observed=True), verdict("b", observed=False)])
    assert not findings.all_observed
    assert [each.step for each in findings.failed] == ["b"]


def test_the_figures_are_written(tmp_path: Path) -> None:
    findings = Findings(cluster_up_s=5.04, idle_ms=[30.0, 20.04], verdicts=[verdict("a", observed=True)])
    findings.compare(pod(), {7: job()})
    findings.write(tmp_path / "build/demo.json")
    assert json.loads((tmp_path / "build/demo.json").read_text()) == {
        "idle_pods": 2,
        "idle_bound_ms_p50": 20.0,
        "idle_bound_ms_p50_budget": 50,
        "idle_bound_ms_p99": 30.0,
        "idle_bound_ms_max": 30.0,
        "pods": 1,
        "mismatches": 0,
        "cluster_up_s": 5.0,
        "observed": {"a": True},
    }


@pytest.mark.real
@pytest.mark.timeout(240)
def test_demo_observes_every_step(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deploy.local.demo", "--nodes=4", "--no-keep"]
    options = [f"--directory={tmp_path / 'cluster'}", f"--figures={tmp_path / 'demo.json'}"]
    done = subprocess.run(
        [*command, *options], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "demo.json").read_text())
    assert figures["idle_pods"] >= 20
    assert 0 < figures["idle_bound_ms_p50"] <= figures["idle_bound_ms_p99"]
    assert figures["pods"] > figures["idle_pods"]
    assert figures["mismatches"] == 0
    assert len(figures["observed"]) == 6
    assert all(figures["observed"].values())
