"""Tests of cores that a Pod shares with a job or with another Pod."""

from __future__ import annotations

from node_agent.enforcement.overlaps import overlaps, words


def test_pod_and_native_job_share_cores() -> None:
    found = overlaps([("ml/a", (0, 1, 2)), ("ml/b", (3,))], {"job_33": {2, 1, 8}, "job_34": {4}})
    assert found == {("Pod ml/a", "job_33"): [1, 2]}
    assert words(found) == "Pod ml/a and job_33 have the same CPUs: 1-2"


def test_two_pods_share_cores() -> None:
    found = overlaps([("ml/b", (1, 2)), ("ml/a", (0, 1)), ("ml/a", (1,))], {"job_33": {2}})
    assert found == {("Pod ml/a", "Pod ml/a", "Pod ml/b"): [1], ("Pod ml/b", "job_33"): [2]}
    assert words(found) == (
        "Pod ml/a and Pod ml/a and Pod ml/b have the same CPUs: 1;"
        " Pod ml/b and job_33 have the same CPUs: 2"
    )


def test_cores_of_native_jobs_alone_are_left_to_slurm() -> None:
    assert overlaps([("ml/a", (0,))], {"job_33": {2}, "job_34": {2}}) == {}
    assert words({}) == ""
