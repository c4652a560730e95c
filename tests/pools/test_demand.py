"""Tests of the pending demand of a pool: the jobs that wait for more nodes of the pool, and the
resources of these jobs."""

from dataclasses import replace
from typing import Any

import pytest

from extender.explain.pending_reasons import PENDING_REASONS
from extender.pools.demand import Demand, demand
from extender.pools.pool import Pool
from slurm_client.in_memory import node, partition
from slurm_client.job_state import JobState
from slurm_client.model import Job

PARTITIONS = {name: partition(name, ()) for name in ("gpu", "big", "cpu")}
WAITS = JobState("PENDING")
JOB = Job(7, WAITS, partition="gpu", reason="Resources", cpus_allocated=8, node_count=2, gpus=16)


def pool(name: str, *partitions: str) -> Pool:
    return Pool(name, {}, partitions=frozenset(partitions))


GPU = pool("gpu", "gpu", "big")


def told(*jobs: Job, size: int = 0, **partitions: Any) -> Demand:
    """Returns the demand of the pool GPU for these waiting jobs. The partition gpu has `size` nodes with
    4 CPUs each. `partitions` replaces partitions."""
    nodes = [replace(node(f"n{number}", cpus=4), partitions=("gpu",)) for number in range(size)]
    known = PARTITIONS | partitions
    return demand([GPU], [(job, 1) for job in jobs], known, nodes)["gpu"]


def counts(size: int = 0, /, **changes: Any) -> bool:
    return told(replace(JOB, **changes), size=size).jobs == 1


def test_demand_is_the_sum_of_the_requests_of_jobs() -> None:
    small = replace(JOB, cpus_allocated=1, node_count=1, gpus=0)
    assert told() == Demand()
    assert told(JOB, small) == Demand(jobs=2, nodes=3, cpus=9, gpus=16)
    assert demand([GPU], [(JOB, 10)], PARTITIONS, [])["gpu"] == Demand(10, 20, 80, 160)  # a job array
    assert demand([pool("cpu")], [(JOB, 1)], PARTITIONS, []) == {}  # a pool without partitions


@pytest.mark.parametrize(("more", "jobs"), [(None, 10), (20, 10), (3, 3), (0, 0)])
def test_array_counts_only_the_tasks_that_its_limit_allows(more: int | None, jobs: int) -> None:
    array = replace(JOB, more_tasks=more)
    assert demand([GPU], [(array, 10)], PARTITIONS, [])["gpu"].jobs == jobs


def test_job_counts_once_for_each_pool_with_a_named_partition() -> None:
    pools = [GPU, pool("all", "gpu", "cpu"), pool("cpu", "cpu")]
    one = demand(pools, [(replace(JOB, partition="gpu,big"), 1)], PARTITIONS, [])
    assert {name: each.jobs for name, each in one.items()} == {"gpu": 1, "all": 1, "cpu": 0}


@pytest.mark.parametrize("reason", ["", "Priority", "Resources", "ReqNodeNotAvail", "NodeDown"])
def test_a_job_that_waits_for_nodes_counts(reason: str) -> None:
    assert counts(100, reason=reason)


@pytest.mark.parametrize(
    "reason",
    [
        *("JobHeldUser", "JobHeldAdmin", "BadConstraints", "BeginTime", "Dependency", "Licenses"),
        *("AssocGrpCpuLimit", "QOSMaxJobsPerUserLimit", "Reservation", "JobArrayTaskLimit"),
        *("PartitionDown", "PartitionTimeLimit", "MaxPoweredUpNodes", "a word of a later Slurm"),
    ],
)
def test_job_that_does_not_wait_for_nodes_does_not_count(reason: str) -> None:
    assert not counts(reason=reason)


@pytest.mark.parametrize("reason", [each.name for each in PENDING_REASONS if each.of_its_owner])
def test_a_job_that_waits_for_its_owner_does_not_count(reason: str) -> None:
    """The owner of the job can end the wait. Among these reasons are the limits of associations and
    QOS."""
    assert not counts(reason=reason)


@pytest.mark.parametrize("limit", ["QOSMaxJobsPerUserLimit", "AssocGrpGRES", "MaxCpuPerAccount"])
def test_the_jobs_behind_a_job_over_a_limit_of_their_owner_do_not_count(limit: str) -> None:
    """Slurm shows another reason for these jobs, because Slurm has not checked the limit for them
    yet."""
    held_back = replace(JOB, user_id=7, account="ml", qos="one", reason=limit)
    behind = [replace(held_back, reason=reason) for reason in ("Priority", "")]
    assert told(*behind).jobs == 2
    assert told(held_back, *behind).jobs == 0
    assert told(held_back, replace(held_back, reason="Resources")).jobs == 1
    others = {"user_id": 8}, {"account": "web"}, {"qos": "two"}, {"partition": "big"}
    for other in others:
        assert told(held_back, replace(behind[0], **other)).jobs == 1


def test_a_limit_on_one_job_holds_back_no_other_job() -> None:
    large = replace(JOB, reason="QOSMaxCpuPerJobLimit")
    assert told(large, replace(JOB, reason="Priority")).jobs == 1


@pytest.mark.parametrize(
    "changes", [{"held": True}, {"reservation": "ours"}, {"required_nodes": ("n1",)}], ids=str
)
def test_job_that_more_nodes_would_not_help_does_not_count(changes: dict[str, Any]) -> None:
    assert not counts(**changes)


@pytest.mark.parametrize("reason", ["PartitionConfig", "PartitionNodeLimit"])
def test_a_job_that_is_too_large_for_its_partition_counts(reason: str) -> None:
    """In a partition without nodes, every job is too large."""
    assert counts(0, reason=reason, node_count=1, cpus_allocated=1)
    assert counts(1, reason=reason)  # the job needs 2 nodes, and the partition has 1
    assert counts(2, reason=reason, cpus_allocated=9)
    assert not counts(2, reason=reason)  # the job fits, so more nodes would not help
    elsewhere = replace(JOB, reason=reason, partition="gpu,big")
    assert told(elsewhere, size=2).jobs == 1  # the job is too large for `big`, which has no nodes


def test_a_job_of_more_nodes_than_its_partition_allows_does_not_count() -> None:
    job = replace(JOB, reason="PartitionNodeLimit")
    assert not told(job, gpu=partition("gpu", (), max_nodes=1)).jobs
    assert told(job, gpu=partition("gpu", (), max_nodes=2)).jobs
