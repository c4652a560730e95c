"""Tests of the agent's condition on the Node."""

from __future__ import annotations

from typing import Any

import pytest

from node_agent.reporting.node_condition import Condition, Reason, differences
from wellknown.names import DEVICE_PROBLEM

FINE = Condition(False, "DevicesUsable", "every device that Slurm counts can be used")


def node(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1"}, "status": status}


def test_node_with_usable_devices_has_no_problem() -> None:
    assert Condition.of({}, []) == FINE


def test_message_names_failed_devices_and_differing_counts() -> None:
    failed = {"/dev/nvidia1": "GPU is lost", "/dev/nvidia0": "no such device"}
    counts = ["the kubelet counts 7 nvidia.com/gpu, and Slurm 8"]
    words = "/dev/nvidia0: no such device; /dev/nvidia1: GPU is lost; " + counts[0]
    assert Condition.of(failed, counts) == Condition(True, "DeviceFailed", words)
    assert Condition.of({}, counts) == Condition(True, "CountsDiffer", counts[0])
    assert len(Condition.of({"/dev/x": "y" * 5000}, []).message) == 1000


def test_condition_has_the_worst_reason_and_all_messages() -> None:
    drivers, words = "a driver hangs", "no list; a driver hangs; gpu 0: GPU is lost; counts"
    problems = {Reason.DEVICE_FAILED: drivers, Reason.LIST_UNREADABLE: "no list", Reason.NOT_GUARDED: ""}
    found = Condition.of({"gpu 0": "GPU is lost"}, ["counts"], problems)
    assert found == Condition(True, "ListUnreadable", words)
    assert Condition.of({}, [], dict.fromkeys(Reason, "")) == FINE


def test_problem_of_jobs_leaves_the_condition_false() -> None:
    step = {Reason.STEP_IN_JOB_OF_POD: "a step"}
    assert Condition.of({}, [], step) == Condition(False, "StepInJobOfPod", "a step")
    both = step | {Reason.CORES_SHARED: "shared"}
    assert Condition.of({}, [], both) == Condition(False, "CoresShared", "shared; a step")
    found = Condition.of({"gpu 0": "GPU is lost"}, [], both)
    assert found == Condition(True, "DeviceFailed", "gpu 0: GPU is lost; shared; a step")


@pytest.mark.parametrize(
    ("before", "changes"), [(None, True), (FINE, False), (FINE._replace(problem=True), True)]
)
def test_written_condition_is_read_back(before: Condition | None, changes: bool) -> None:
    (written,) = FINE.patch(before)["status"]["conditions"]
    assert Condition.on(node(conditions=[{"type": "Ready", "status": "True"}, written])) == FINE
    assert (written["type"], written["status"]) == (DEVICE_PROBLEM, "False")
    assert ("lastTransitionTime" in written) is changes


def test_node_without_the_condition_has_none() -> None:
    assert Condition.on({"metadata": {}}) is None
    assert Condition.on(node(conditions=[{"type": "Ready", "status": "True"}])) is None


def test_only_differing_counts_of_the_kubelet_are_reported() -> None:
    counted = {"nvidia.com/gpu": 8, "example.com/fpga": 1, "amd.com/gpu": 2}
    capacity = {"cpu": "64", "nvidia.com/gpu": "7", "example.com/fpga": "1"}
    words = "the kubelet counts 7 nvidia.com/gpu, and Slurm 8"
    assert differences(node(capacity=capacity), counted) == [words]
    assert differences(node(), counted) == []
