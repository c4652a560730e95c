"""Tests of Slurm's limits of a native job, by the cgroup of the job."""

from __future__ import annotations

import pytest

from node_agent.enforcement.constraints import Counted, missing, words
from node_agent.pods.cgroups import CPUS, MEMORY

ALL = Counted(memory=True, devices=True)
HELD = {CPUS: "2-3", MEMORY: "104857600"}


@pytest.mark.parametrize(
    ("now", "has_program", "expected"),
    [
        (HELD, True, {}),
        (HELD | {CPUS: ""}, True, {"ConstrainCores": "its cpuset.cpus is empty"}),
        ({MEMORY: "1"}, True, {"ConstrainCores": "its cpuset.cpus is not there"}),
        (HELD | {MEMORY: "max"}, True, {"ConstrainRAMSpace": "its memory.max is max"}),
        ({CPUS: "0"}, True, {"ConstrainRAMSpace": "its memory.max is not there"}),
        (HELD, False, {"ConstrainDevices": "it has no device program"}),
    ],
)
def test_missing_limits_are_found(
    now: dict[str, str], has_program: bool, expected: dict[str, str]
) -> None:
    assert missing(now, ALL, has_program=has_program) == expected


def test_limits_of_uncounted_resources_are_not_required() -> None:
    none = Counted(memory=False, devices=False)
    assert missing(HELD | {MEMORY: "max"}, none, has_program=False) == {}
    assert [*missing({}, none, has_program=False)] == ["ConstrainCores"]


def test_message_groups_jobs_by_parameter() -> None:
    empty, without = "its cpuset.cpus is empty", "it has no device program"
    jobs = {
        "job_8": {"ConstrainCores": empty},
        "job_7": {"ConstrainCores": empty, "ConstrainDevices": without},
        "job_6": {},
    }
    assert words(jobs) == (
        f"ConstrainCores=yes (cgroup.conf) is not in force for job_7 and 1 more: {empty}; "
        f"ConstrainDevices=yes (cgroup.conf) is not in force for job_7: {without}"
    )
    assert words({"job_6": {}}) == ""
