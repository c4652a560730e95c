"""Tests of `Member`, the state of a slurmd Pod together with its node, as kubelets and Slurm report the
state."""

import json
from dataclasses import replace
from typing import Any

import pytest

from extender.jobs.phase import Phase
from extender.jobs.tracked_job import TrackedJob
from extender.pools.member import Member, SlurmdPod, placeholder_cpus
from extender.record.member import Member as RecordMember
from extender.record.states import State
from slurm_client.model import Node
from tests import builders
from wellknown.allocation import Allocation
from wellknown.slurmd_pod import Assignment, pod_name, pull_pod_name

ASSIGNED = Assignment("gpu", "gpu-1")


def pod(status: dict[str, Any], **metadata: Any) -> SlurmdPod:
    labels = {"slurm-extender.io/pool": "gpu", "slurm-extender.io/revision": "gpu-1"}
    found = SlurmdPod.parse({"metadata": {"labels": labels} | metadata, "status": status})
    assert found is not None
    return found


def running(ready: str = "True") -> dict[str, Any]:
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": ready}],
        "containerStatuses": [
            {"name": "side", "state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}}},
            {"name": "slurmd", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}},
        ],
    }


def test_a_pod_of_no_pool_is_no_slurmd_pod() -> None:
    assert SlurmdPod.parse({"metadata": {"name": "p"}}) is None


def test_running_pod_has_the_start_time_of_slurmd() -> None:
    assert pod(running()) == SlurmdPod("gpu", "gpu-1", ready=True, started=1767225600.0)
    assert pod(running("False")).ready is False
    assert pod({}, deletionTimestamp="2026-01-01T00:00:00Z").leaving


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({}, ""),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "the Pod has ended: Evicted disk"),
        ({"containerStatuses": [{"name": "s", "state": {"waiting": {"reason": "Pulling"}}}]}, ""),
        (
            {
                "containerStatuses": [
                    {
                        "name": "slurmd",
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                        "lastState": {"terminated": {"exitCode": 1, "message": "fatal: no\nkey"}},
                    }
                ]
            },
            "container slurmd: CrashLoopBackOff: fatal: no key",
        ),
        (
            {"initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "ErrImagePull",
             "message": "not found"}}}]},
            "container i: ErrImagePull: not found",
        ),
    ],
)  # fmt: skip
def test_failure_of_a_pod_comes_from_its_status(status: dict[str, Any], why: str) -> None:
    assert pod(status).failing == why


def member(node: Node | None, of: SlurmdPod | None = None, **more: Any) -> Member:
    return Member("n1", "n1", ASSIGNED, of, node, **more)


def slurm(*states: str, started: int | None = None, **fields: Any) -> Node:
    return Node("n1", frozenset(states), 8, 100, slurmd_started=started, cores=4, **fields)


def test_a_node_is_busy_with_native_jobs_and_not_with_placeholders() -> None:
    assert not member(None).busy
    assert member(slurm("MIXED", cpus_allocated=2)).busy
    assert not member(slurm("MIXED", cpus_allocated=2), placeholder_cpus=2).busy
    assert member(slurm("MIXED", cpus_allocated=4), placeholder_cpus=2).busy
    assert member(slurm("IDLE", "COMPLETING")).busy


def test_a_node_with_a_suspended_job_is_not_idle() -> None:
    """A suspended job holds memory but no CPUs, so the node's allocated memory shows the job."""
    suspended = member(slurm("MIXED", memory_allocated_mb=10))
    assert suspended.busy
    assert suspended.allocated


def test_registration_from_before_the_start_of_the_pod_does_not_count() -> None:
    now = pod(running())
    assert member(slurm("IDLE", started=1767225601), now).serves
    assert not member(slurm("IDLE", started=1767225000), now).serves
    assert not member(slurm("IDLE", started=None), now).serves
    assert not member(slurm("IDLE", "NOT_RESPONDING", started=1767225601), now).serves
    assert not member(slurm("IDLE", started=1767225601), pod(running("False"))).serves
    pools = slurm("IDLE", "DRAIN", started=1767225601, reason="slurm-extender pool gpu: roll-out")
    assert not member(pools, now).serves
    persons = slurm("IDLE", "DRAIN", started=1767225601, reason="loud disk")
    assert member(persons, now).serves


def test_problem_reported_by_the_agent_is_a_failure_of_the_pod() -> None:
    assert member(None, problem="kube-apiserver does not take it").failing == (
        "kube-apiserver does not take it"
    )
    assert not Member("n1", "n1", problem="old").failing


def test_problem_of_the_new_revision_is_a_failure_while_the_old_pod_runs() -> None:
    before = replace(pod(running()), revision="gpu-0")
    pulls = member(None, before, problem="images of gpu-1: not pulled: not found")
    assert pulls.failing == "images of gpu-1: not pulled: not found"
    for problem in (
        "images of gpu-0: not pulled",
        "the slurmd Pod is not ended, since Slurm's jobs run",
    ):
        assert not replace(pulls, problem=problem).failing


def test_long_names_of_nodes_give_unique_names_of_pods() -> None:
    assert pod_name("n1") == "slurmd-n1"
    assert pull_pod_name("n1") == "pull-slurmd-n1"
    for name in (pod_name, pull_pod_name):
        long = [name("n" * 250 + end) for end in ("a", "b")]
        assert all(len(each) <= 253 for each in long)
        assert long[0] != long[1]


def test_slurmd_that_crashes_repeatedly_fails_while_it_runs() -> None:
    status = running()
    status["containerStatuses"][1]["restartCount"] = 3
    now, node = pod(status), slurm("IDLE", started=1767225601)
    assert member(node, now, now=1767225660.0).failing == "slurmd has ended 3 times"
    assert not member(node, now, now=1767226300.0).failing


def test_slurmd_is_not_silent_if_slurmctld_has_just_started() -> None:
    late, made = 1767229000.0, "2026-01-01T00:00:00Z"
    assert not member(slurm("IDLE", started=None), pod(running()), now=late).failing
    assert "10 minutes" in member(slurm("IDLE", started=1767225000), pod(running()), now=late).failing
    assert "10 minutes" in member(None, pod({}, creationTimestamp=made), now=late).failing


@pytest.mark.parametrize(("timeout_s", "after_s"), [(300, 100), (60, 20), (0, 600), (7200, 600)])
def test_a_new_slurmd_has_a_third_of_slurmd_timeout_if_placeholders_are_there(
    timeout_s: int, after_s: int
) -> None:
    made = 1767225600.0
    pulls = pod({}, creationTimestamp="2026-01-01T00:00:00Z")
    holds = slurm("MIXED", cpus_allocated=2, started=1767200000)
    follows = replace(
        member(holds, pulls, placeholder_cpus=2),
        slurmd_timeout_s=timeout_s,
        assigned=replace(ASSIGNED, before="gpu-0"),
    )
    assert not replace(follows, now=made + after_s - 1).failing
    silent = replace(follows, now=made + after_s)
    assert "has not registered at slurmctld for" in silent.failing
    assert silent.goes_back
    for other in (
        replace(silent, assigned=ASSIGNED),
        replace(silent, slurm=slurm("IDLE", started=1767200000)),  # no placeholder is on the node
    ):
        assert not other.goes_back
    # CPUs may be allocated without a placeholder: after the end of slurmd, an ended placeholder stays
    # COMPLETING and keeps its CPUs.
    assert replace(silent, placeholder_cpus=0).goes_back
    registered = slurm("MIXED", cpus_allocated=2, started=1767225601)
    assert not replace(silent, slurm=registered, pod=pod(running())).failing


def test_placeholder_with_an_ended_job_or_an_evicted_pod_has_no_cpus() -> None:
    part = RecordMember(builders.pod(name="p"), Allocation(1, "n1", cores="0-3"))
    record = builders.placeholder_of(part.pod, members=(part,))
    node = slurm("ALLOCATED")
    assert placeholder_cpus((), "n1", node) == 0
    assert placeholder_cpus([record], "n1", node) == 8
    over = record._replace(job=TrackedJob(id=1, phase=Phase.ENDED))
    assert placeholder_cpus([over], "n1", node) == 0
    assert placeholder_cpus([record._replace(state=State.EVICTING)], "n1", node) == 0


def test_assignment_goes_back_to_the_old_revision_and_is_read_back() -> None:
    newest = Assignment("gpu", "gpu-2", "conf", before="gpu-1")
    back = newest.back("CrashLoopBackOff: " + "x" * 400)
    assert (back.revision, back.before, back.failed, len(back.why)) == ("gpu-1", "", "gpu-2", 200)
    for each in (newest, back):
        assert Assignment.on(each.annotations()) == each
    assert back.same_for_all == Assignment("gpu", "gpu-1", "conf")


@pytest.mark.parametrize("pool", ["", "x" * 64, 7])
def test_forged_assignment_is_ignored(pool: object) -> None:
    """Root on a Node can write any assignment into the Node's annotations. The extender must not copy an
    invalid pool name from there into Slurm's reasons."""
    text = json.dumps({"v": 1, "pool": pool, "revision": "r"})
    assert Assignment.on({"slurm-extender.io/slurmd": text}) is None
