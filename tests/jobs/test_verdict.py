"""Tests of the verdict on a job: the owner of the job, and the altered parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.explain.sentences import sentence
from extender.jobs.claim import JobClaim, JobIdentity, identity_of
from extender.jobs.grants import covers
from extender.jobs.verdict import Ownership, Part, Verdict, judge
from extender.pod_request.workload import Workload
from slurm_client.job_state import JobState
from slurm_client.model import Grant, Job, JobSpec
from tests.builders import kube_node, pod, view
from wellknown.job_key import PlaceholderKey

CREATED = 1_000_000
KEY = PlaceholderKey("here", "default", "p", "u1", 2)
CLAIM = JobClaim(
    cluster="here", workload=Workload("u1", "default", "p", "1970-01-12T13:46:40Z"), ids=(40_000_001,)
)
JOB = Job(
    40_000_001,
    JobState("RUNNING"),
    name="p@default",
    admin_comment=str(KEY),
    submit_time=CREATED,
    sluid="s1",
    nodes=("n1",),
)
WITHOUT = replace(JOB, admin_comment="")
RENAMED = replace(WITHOUT, name="mine")
AT_N1 = {"pods": (pod(name="p", node="n1", gates=()),), "view": view(kube_node("n1"), kube_node("n2"))}
AT_N2 = AT_N1 | {"pods": (pod(name="p", node="n2", gates=()),)}
OURS = (Ownership.OURS, set[Part]())
FOREIGN = (Ownership.FOREIGN, set[Part]())
LOST_KEY = (Ownership.ALTERED, {Part.ADMIN_COMMENT})
BOTH = (Ownership.ALTERED, {Part.ADMIN_COMMENT, Part.NAME})


@pytest.mark.parametrize(
    ("job", "changes", "expected"),
    [
        (JOB, {}, OURS),
        (replace(JOB, id=7, submit_time=None), {}, OURS),
        (replace(JOB, name="x"), {}, (Ownership.ALTERED, {Part.NAME})),
        (replace(JOB, restart_count=1), {}, (Ownership.ALTERED, {Part.RESTARTED})),
        (replace(JOB, state=JobState("SUSPENDED")), {}, (Ownership.ALTERED, {Part.SUSPENDED})),
        (replace(JOB, suspend_time=CREATED), {}, (Ownership.ALTERED, {Part.SUSPENDED})),
        (JOB, {"attempt": 2}, OURS),
        (JOB, {"attempt": 3}, FOREIGN),
        (JOB, {"workload": Workload("u2", "default", "p")}, FOREIGN),
        (JOB, {"cluster": "there"}, FOREIGN),
        (JOB, {"cluster": "there", "known": identity_of(JOB), "taken": True}, FOREIGN),
        # Jobs without the key.
        (WITHOUT, {}, LOST_KEY),
        (replace(WITHOUT, admin_comment="by a plugin"), {}, LOST_KEY),
        (replace(WITHOUT, submit_time=CREATED - 299), {}, LOST_KEY),
        (replace(WITHOUT, submit_time=CREATED - 301), {}, FOREIGN),
        (replace(WITHOUT, submit_time=None), {}, FOREIGN),
        (replace(WITHOUT, submit_time=None), {"workload": Workload("u1", "default", "p")}, LOST_KEY),
        (WITHOUT, {"ids": (40_000_002,)}, FOREIGN),
        # Jobs without the key and the name.
        (RENAMED, {}, FOREIGN),
        (RENAMED, {"taken": True}, BOTH),
        (RENAMED, {"known": identity_of(JOB)}, BOTH),
        (RENAMED, {"known": JobIdentity(JOB.id, "s2", CREATED), "taken": True}, FOREIGN),
        (RENAMED, AT_N1, BOTH),
        (RENAMED, AT_N2, FOREIGN),
        (replace(RENAMED, state=JobState("PENDING")), AT_N1, FOREIGN),
        (RENAMED, AT_N1 | {"ids": (7,)}, FOREIGN),
    ],
)
def test_judge_decides_the_ownership_of_a_job(
    job: Job, changes: dict[str, Any], expected: tuple[Ownership, set[Part]]
) -> None:
    verdict = judge(job, replace(CLAIM, **changes))
    assert (verdict.kind, {part for part, _ in verdict.altered}) == expected
    assert verdict.is_ours is (verdict.kind is not Ownership.FOREIGN)


def test_ownership_of_a_job_that_slurm_does_not_know_is_unknown() -> None:
    verdict = judge(None, CLAIM)
    assert verdict.kind is Ownership.UNKNOWN
    assert not verdict.is_ours


def misfit(asked: JobSpec, job: Job) -> str | None:
    """Returns a message about the missing parts of the request; None if the job fits."""
    return "; ".join(map(sentence, _of_request(asked, job).lacks())) or None


def ends_earlier(asked: JobSpec, job: Job) -> str | None:
    return "; ".join(map(sentence, _of_request(asked, job).lacks(Part.TIME_LIMIT))) or None


def _of_request(asked: JobSpec, job: Job) -> Verdict:
    return judge(replace(job, name="p@default", admin_comment=str(KEY)), CLAIM, asked)


ASKED = JobSpec(
    "p@default",
    cpus=4,
    memory_mb=4000,
    gres=(("gpu:h100", 2),),
    partition="main,spare",
    user_id=2001,
    time_limit_minutes=60,
)
GIVEN = Job(
    1,
    JobState("RUNNING"),
    partition="spare",
    user_id=2001,
    group_id=2001,
    gres=("gpu:h100:2(IDX:0-1)",),
    cpus_allocated=4,
    cpus_per_node=4,
    memory_mb=4000,
    tres_per_node="gres/gpu:h100:2",
    node_count=1,
    time_limit_minutes=60,
)


def test_job_as_requested_fits() -> None:
    assert misfit(ASKED, GIVEN) is None


@pytest.mark.parametrize(
    "more",
    [
        {"cpus_allocated": 8},  # whole cores, or the whole node
        {"memory_mb": 8000},
        {"memory_mb": 0},  # the whole memory of the node
        {"memory_mb": None, "memory_per_cpu_mb": 1000},
        {"time_limit_minutes": None},  # no time limit
        {"time_limit_minutes": 90},  # an administrator gave more time
        {"partition": "main,spare", "state": JobState("PENDING"), "gres": ()},
        {"tres_per_node": "gres:gpu:h100:2, gres/shard:4"},
        {"gres": ("gpu:h100:4(IDX:0-3)",), "tres_per_node": "gres/gpu:h100:4"},
        {"cpus_per_node": None, "node_count": None},  # not reported
        {"cpus_per_node": 1},  # for a running job, only the allocated CPUs count
        {"tres_per_node": "gres/gpu:h100=2"},
    ],
)
def test_job_with_more_than_requested_fits(more: dict[str, Any]) -> None:
    assert misfit(ASKED, replace(GIVEN, **more)) is None


@pytest.mark.parametrize(
    ("less", "words"),
    [
        ({"cpus_allocated": 1}, "the job has 1 CPUs instead of 4"),
        ({"cpus_per_node": 1, "state": JobState("PENDING")}, "the job has 1 CPUs instead of 4"),
        ({"memory_mb": 1}, "the job has 1 MiB of memory instead of 4000"),
        ({"memory_mb": None, "memory_per_cpu_mb": 1}, "the job has 4 MiB of memory instead of 4000"),
        ({"tres_per_node": "gres/gpu:h100:1"}, "the job has 1 of GRES gpu:h100 instead of 2"),
        ({"tres_per_node": ""}, "the job has 0 of GRES gpu:h100 instead of 2"),
        ({"tres_per_node": "gres/gpu:a100:2"}, "the job has 0 of GRES gpu:h100 instead of 2"),
        ({"gres": ("gpu:h100:1(IDX:0)",)}, "the job has 1 of GRES gpu:h100 instead of 2"),
        ({"node_count": 2}, "the job has 2 nodes instead of 1"),
        ({"partition": "high"}, "the job is in partition high instead of main,spare"),
        ({"partition": "main,high"}, "the job is in partition main,high instead of main,spare"),
        ({"user_id": 2002}, "the job belongs to user 2002 and group 2001 instead of 2001 and 2001"),
        ({"group_id": 0}, "the job belongs to user 2001 and group 0 instead of 2001 and 2001"),
    ],
)
def test_verdict_states_what_a_job_below_its_request_lacks(less: dict[str, Any], words: str) -> None:
    assert misfit(ASKED, replace(GIVEN, **less)) == words


SHARDS = replace(ASKED, gres=(("shard:h100", 2),))


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"gres": ("shard:2(0/4,2/4)",)}, None),  # for a job with shards, Slurm reports no type
        ({"gres": ("shard:1(0/4,1/4)",)}, "the job has 1 of GRES shard:h100 instead of 2"),
        (
            {"gres": (), "tres_per_node": "gres/shard:a100:2"},
            "the job has 0 of GRES shard:h100 instead of 2",
        ),
    ],
)
def test_parts_of_gpus_fit_by_number(told: dict[str, Any], words: str | None) -> None:
    job = replace(GIVEN, **{"tres_per_node": "gres/shard:h100:2", **told})
    assert misfit(SHARDS, job) == words
    assert covers(job.grant, SHARDS) is (told["gres"] != () and words is None)


def test_shorter_time_limit_fits_and_can_be_reported() -> None:
    shorter = replace(GIVEN, time_limit_minutes=1)
    assert misfit(ASKED, shorter) is None
    assert ends_earlier(ASKED, shorter) == "the job's time limit is 1 minutes instead of 60"
    for enough in (60, 90, None):
        assert ends_earlier(ASKED, replace(GIVEN, time_limit_minutes=enough)) is None
    assert ends_earlier(replace(ASKED, time_limit_minutes=None), shorter) is None


def test_verdict_lists_everything_that_the_job_lacks() -> None:
    given = replace(GIVEN, cpus_allocated=1, memory_mb=1)
    words = "the job has 1 CPUs instead of 4; the job has 1 MiB of memory instead of 4000"
    assert misfit(ASKED, given) == words


def test_any_partition_fits_if_none_was_requested() -> None:
    assert misfit(replace(ASKED, partition=None), replace(GIVEN, partition="routed")) is None


THREE = replace(ASKED, nodes=3)
GIVEN_THREE = replace(
    GIVEN, node_count=3, nodes=("n1", "n2", "n3"), cpus_allocated=12, gres=("gpu:h100:2(IDX:0-1)",) * 3
)


def test_job_on_several_nodes_as_requested_fits() -> None:
    assert misfit(THREE, GIVEN_THREE) is None
    assert covers(Grant(GIVEN_THREE.nodes, GIVEN_THREE.gres), THREE)


@pytest.mark.parametrize(
    ("less", "told"),
    [
        ({"cpus_allocated": 11}, "the job has 3 CPUs instead of 4"),
        (
            {"memory_mb": None, "memory_per_cpu_mb": 500},
            "the job has 2000 MiB of memory instead of 4000",
        ),
        (
            {"gres": ("gpu:h100:4(IDX:0-3)", "gpu:h100:2(IDX:0-1)", "")},
            "the job has 0 of GRES gpu:h100 instead of 2",
        ),
    ],
)
def test_no_node_makes_up_for_what_another_lacks(less: dict[str, Any], told: str) -> None:
    job = replace(GIVEN_THREE, **less)
    assert misfit(THREE, job) == told
    if "gres" in less:
        assert not covers(Grant(job.nodes, job.gres), THREE)
