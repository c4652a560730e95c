"""Tests of jobs with an overwritten AdminComment, and of cancels that could hit another job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.cause import Step
from extender.explain.sentences import sentence
from extender.record.events import CancelJob, ReadJob, ReportWaiting, Submit
from extender.record.states import State
from slurm_client.job_state import JobState
from slurm_client.model import Job
from tests.builders import placeholder_job, pod
from tests.placement.ledger_world import REQUEST, World, calm_down, ends_well, of_kind


def outlast(world: World, seconds: int) -> None:
    for _ in range(seconds):
        world.wait_and_poll(1.0)
        world.schedule()


def live_on(world: World, seconds: int) -> None:
    """Lets time pass, without losing a reply or an event. Lets kube-scheduler bind the Pods."""
    for _ in range(seconds):
        outlast(world, 1)
        for uid in world.pods:
            world.bind(uid)
        world.settle()


@pytest.mark.parametrize("fast_path", [True, False])
def test_a_job_submit_plugin_that_overwrites_the_key_leaves_no_job_behind(fast_path: bool) -> None:
    world = World(overwrites_keys=True)
    world.rules = replace(world.rules, fast_path=fast_path)
    world.restart()
    uid = world.settled_pod()
    outlast(world, 30)
    assert world.live_jobs(uid) == []
    assert len(world.jobs) == 1
    assert world.state_of(uid) is State.INVALID


def test_cause_names_the_plugin_that_overwrites_keys_and_the_next_job() -> None:
    world = World(overwrites_keys=True)
    told = world.refusal_of(world.create_pod())
    assert "job_submit plugin" in sentence(told)
    assert "AdminComment" in sentence(told)
    assert sentence(told).endswith("overwrites AdminComments. The extender cancels the job")
    (due,) = told.dues
    assert due.step is Step.ANOTHER_JOB
    assert due.at == pytest.approx(world.now + world.rules.altered_job_pause, abs=1)


def test_pod_refused_for_a_plugin_is_retried_after_a_pause() -> None:
    world = World(overwrites_keys=True)
    uid = world.create_pod()
    world.refusal_of(uid)
    world.overwrites_keys = False
    outlast(world, int(world.rules.altered_job_pause) + 5)
    assert len(world.live_jobs(uid)) == 1
    calm_down(world, rounds=5)
    ends_well(world)


def test_only_the_first_immediate_job_of_a_partition_is_read(world: World) -> None:
    first = world.bound_pod()
    second = world.create_pod()
    assert not of_kind(world.settle(), ReadJob)
    assert world.pods[second].scheduling.allocation is not None
    assert world.state_of(first) is State.BOUND


def test_new_leader_requests_no_second_job_if_a_bound_pods_key_is_lost(world: World) -> None:
    uid, job_id = world.bound_pod_and_job()
    world.overwrite_key(job_id, "by hand")
    world.restart()
    outlast(world, int(world.rules.recovery_read_spread) + 5)
    assert [job.id for job in world.live_jobs(uid)] == [job_id]
    assert world.state_of(uid) is State.BOUND


@pytest.mark.parametrize("name", ["p1@default", "renamed"])
def test_a_bound_pods_job_without_its_key_ends_with_its_pod(world: World, name: str) -> None:
    uid, job_id = world.bound_pod_and_job()
    world.jobs[job_id] = replace(world.jobs[job_id], name=name, admin_comment="")
    world.restart()
    outlast(world, int(world.rules.recovery_read_spread) + 5)
    world.remove_and_settle(uid)
    outlast(world, 20)
    assert world.jobs[job_id].state.base == "CANCELLED"


def test_queued_job_that_loses_its_key_is_kept_by_the_same_leader(world: World) -> None:
    uid = world.queued_pod()
    outlast(world, 3)
    world.overwrite_key(world.job_id_of(uid))
    outlast(world, 30)
    assert world.state_of(uid) is State.QUEUED
    assert len(world.live_jobs(uid)) == 1


def test_readyz_reports_jobs_with_lost_keys(world: World) -> None:
    uid, job_id = world.bound_pod_and_job()
    assert not world.lost_keys
    world.overwrite_key(job_id)
    world.restart()
    outlast(world, int(world.rules.recovery_read_spread) + 5)
    assert world.lost_keys is not None
    assert "job_submit plugin" in world.lost_keys
    assert str(job_id) in world.lost_keys
    world.remove_and_settle(uid)
    outlast(world, 100)
    assert world.lost_keys is None


# Cancellations that also name the job

NOT_UTF8 = "not UTF-8"
"""A job's name that no request for a cancellation can contain."""


def renamed_job_of_a_pod_that_goes(world: World, name: str = "mine") -> int:
    """Renames the job of a bound Pod, as the owner does, and deletes the Pod. Returns the job id."""
    uid, job_id = world.bound_pod_and_job()
    if name == NOT_UTF8:
        world.give_odd_name(job_id)
    else:
        world.jobs[job_id] = replace(world.jobs[job_id], name=name)
    world.remove_pod(uid)
    return job_id


def give_the_id_to_another_job(world: World, job_id: int) -> Job:
    """Gives the id to another job. slurmctld forgot the submission of the Pod's job, because slurmctld
    was killed before slurmctld had saved the submission."""
    world.jobs[job_id] = Job(job_id, JobState("RUNNING"), name="train", nodes=("n2",), submit_time=999)
    world.submitted.pop(job_id)
    return world.jobs[job_id]


def test_a_job_that_its_owner_renamed_is_read_and_then_cancelled(world: World) -> None:
    job_id = renamed_job_of_a_pod_that_goes(world)
    done = [e for e in world.settle() if isinstance(e, CancelJob | ReadJob)]
    assert [type(e) for e in done] == [CancelJob, ReadJob, CancelJob]
    assert world.jobs[job_id].state.base == "CANCELLED"


def test_a_renamed_job_is_read_again_before_its_cancellation_is_repeated(world: World) -> None:
    """slurmctld was killed after the first cancellation, and has given the id to another job."""
    job_id = renamed_job_of_a_pod_that_goes(world)
    world.settle()
    others = give_the_id_to_another_job(world, job_id)
    outlast(world, 30)
    assert world.jobs[job_id] == others


def test_another_job_under_a_reused_id_is_never_cancelled(world: World) -> None:
    """slurmctld was killed, and has given the id to another job before the next poll."""
    uid, job_id = world.bound_pod_and_job()
    others = give_the_id_to_another_job(world, job_id)
    world.remove_and_settle(uid)
    outlast(world, 200)
    assert world.jobs[job_id] == others
    assert list(world.ledger.placeholders) == []


def test_cancel_ends_if_its_renamed_job_is_gone(world: World) -> None:
    job_id = renamed_job_of_a_pod_that_goes(world)
    world.hear()
    world.carry_out(world.take(CancelJob))
    del world.jobs[job_id]
    assert len(world.settle()) < 5
    outlast(world, 100)
    assert list(world.ledger.placeholders) == []


@pytest.mark.parametrize("goes_on", [True, False])
def test_job_that_its_owner_keeps_renaming_is_cancelled(world: World, goes_on: bool) -> None:
    uid, job_id = world.bound_pod_and_job()
    world.remove_pod(uid)
    renamed = 0
    for _ in range(600):
        world.hear_all()
        for effect in [world.effects.pop(0) for _ in range(len(world.effects))]:
            lives = world.jobs[job_id].state.running
            if isinstance(effect, CancelJob) and lives and (goes_on or not renamed):
                renamed += 1
                world.jobs[job_id] = replace(world.jobs[job_id], name=f"mine {renamed}")
            world.carry_out(effect)
        world.pass_time(0.1)
    assert renamed < 10
    assert world.jobs[job_id].state.base == "CANCELLED"


def asked_while_reads_miss(world: World, every: int, seconds: int) -> int:
    """Lets only one of `every` reads find the job. Returns the number of requests to Slurm."""
    asked, reads = 0, 0
    for _ in range(seconds * 10):
        world.hear_all()
        for effect in [world.effects.pop(0) for _ in range(len(world.effects))]:
            asked += 1
            reads += isinstance(effect, ReadJob)
            missed = isinstance(effect, ReadJob) and reads % every
            world.finish(effect, None if missed else world.do(effect))
        world.pass_time(0.1)
    return asked


def test_job_with_an_unusable_name_is_cancelled_despite_missed_reads(world: World) -> None:
    job_id = renamed_job_of_a_pod_that_goes(world, NOT_UTF8)
    asked_while_reads_miss(world, 2, seconds=60)
    assert world.jobs[job_id].state.base == "CANCELLED"


def test_renamed_job_that_no_read_finds_is_read_with_pauses(world: World) -> None:
    job_id = renamed_job_of_a_pod_that_goes(world, NOT_UTF8)
    assert asked_while_reads_miss(world, 1000, seconds=60) < 20
    assert world.jobs[job_id].state.running


def test_job_with_an_empty_name_is_cancelled(world: World) -> None:
    uid, job_id = world.bound_pod_and_job()
    world.jobs[job_id] = replace(world.jobs[job_id], name="")
    assert len(world.remove_and_settle(uid)) < 6
    assert world.jobs[job_id].state.base == "CANCELLED"


def test_queued_pod_requests_the_next_id_if_another_job_has_its_id(world: World) -> None:
    uid = world.queued_pod()
    outlast(world, 3)
    job_id = world.job_id_of(uid)
    others = replace(placeholder_job(pod(uid="else")), id=job_id, state=JobState("PENDING"))
    world.jobs[job_id] = others
    outlast(world, 15)
    assert world.jobs[job_id].state.pending
    assert world.state_of(uid) is State.QUEUED
    assert world.job_id_of(uid) != job_id


# Jobs that differ from the request of the Pod


SHRUNK = [
    {"cpus_allocated": 0},
    {"memory_mb": 0, "memory_per_cpu_mb": 0, "node_count": 2},
    {"partition": "cheap"},
]


BIG = replace(
    REQUEST,
    job=replace(
        REQUEST.job, cpus=4, memory_mb=100, partition="main", time_limit_minutes=60, gres=(("gpu", 2),)
    ),
)


def queued_big_pod(world: World) -> tuple[str, int]:
    """Creates a Pod with a waiting job. Returns the uid and the job id."""
    uid = world.queued_pod(request=BIG)
    return uid, world.job_id_of(uid)


@pytest.mark.parametrize("changes", [*SHRUNK, {"tres_per_node": "gres/gpu:1"}, {"memory_mb": 99}])
def test_shrunk_queued_job_is_replaced(world: World, changes: dict[str, object]) -> None:
    uid, job_id = queued_big_pod(world)
    world.change_job(job_id, **changes)
    outlast(world, 15)
    assert world.jobs[job_id].state.base == "CANCELLED"
    assert world.job_id_of(uid) != job_id


def test_queued_job_with_less_time_is_replaced_only_by_a_new_leader(world: World) -> None:
    uid, job_id = queued_big_pod(world)
    world.change_job(job_id, time_limit_minutes=1)
    outlast(world, 15)
    assert world.job_id_of(uid) == job_id
    world.restart()
    outlast(world, 15)
    assert world.job_id_of(uid) != job_id


def test_shrunk_job_that_started_is_cancelled_and_reported(world: World) -> None:
    uid, job_id = queued_big_pod(world)
    world.change_job(job_id, cpus_allocated=1)
    world.remove_and_settle("u1")
    world.schedule()
    assert world.jobs[job_id].state.running
    told = [sentence(each.cause) for each in of_kind(world.poll(), ReportWaiting) if each.uid == uid]
    assert any("1 CPUs instead of 4" in words for words in told), told
    assert world.jobs[job_id].state.base == "CANCELLED"
    assert [e.job.cpus for e in world.poll() if isinstance(e, Submit)] == [4]


def test_pod_changed_without_a_leader_is_not_placed_by_its_old_job(world: World) -> None:
    uid, before = queued_big_pod(world)
    world.change_request(uid, partition="other")
    world.news.clear()
    world.restart_and_settle()
    outlast(world, 5)
    assert world.jobs[before].state.base == "CANCELLED"
    assert world.jobs[world.job_id_of(uid)].partition == "other"


REWRITTEN: list[dict[str, object]] = [
    {"partition": "routed"},
    {"cpus_allocated": 1, "cpus_per_node": 1},
    {"memory_mb": 99},
    {"tres_per_node": ""},
    {"node_count": 2},
]


@pytest.mark.parametrize("rewrites", REWRITTEN)
@pytest.mark.parametrize("fast_path", [True, False])
def test_plugin_that_changes_jobs_causes_few_jobs_and_is_reported(
    rewrites: dict[str, object], fast_path: bool
) -> None:
    """Each job with changes by the plugin starts, and may preempt another job. So there must be few such
    jobs."""
    world = World(rewrites=rewrites)
    world.rules = replace(world.rules, fast_path=fast_path)
    world.restart()
    uid = world.create_pod(request=BIG)
    while world.state_of(uid) is not State.INVALID:
        live_on(world, 1)
    assert len(world.jobs) == 2
    live_on(world, 1800)
    assert len(world.jobs) <= 2 + 1800 // world.rules.altered_job_pause
    assert world.pods[uid].life.node is None
    assert world.state_of(uid) is State.INVALID
    told = world.record(uid).cause
    assert told is not None
    assert "job_submit plugin" in sentence(told)
    assert "instead of" in sentence(told)
    world.rewrites = {}
    live_on(world, int(world.rules.altered_job_pause) + 5)
    assert world.state_of(uid) is State.BOUND


def test_owner_that_shrinks_jobs_repeatedly_is_not_taken_for_a_plugin(world: World) -> None:
    uid, _ = queued_big_pod(world)
    for _ in range(3):
        world.change_job(world.job_id_of(uid), cpus_allocated=1)  # before the first read
        outlast(world, 15)
        assert world.state_of(uid) is State.QUEUED
        before = world.job_id_of(uid)
        world.change_job(before, cpus_allocated=1)  # after a read without a difference
        for _ in range(200):
            world.wait_and_poll(0.1)
            if [job.id for job in world.live_jobs(uid)] not in ([], [before]):
                break


def test_no_job_is_granted_unread_in_a_partition_with_changed_jobs() -> None:
    world = World(rewrites={"cpus_allocated": 1})
    first = world.create_pod(request=BIG)
    live_on(world, 10)
    second = world.create_pod(request=BIG)
    live_on(world, 10)
    assert [world.pods[uid].life.node for uid in (first, second)] == [None, None]


@pytest.mark.parametrize(
    "rewrites",
    [
        {"qos": "routed", "account": "routed"},
        {"cpus_allocated": 8},
        {"memory_mb": None, "memory_per_cpu_mb": 25},
        {"tres_per_node": "gres/gpu:h100=2"},
        {"time_limit_minutes": 30},
    ],
)
def test_plugin_change_that_takes_nothing_from_the_pod_is_accepted(rewrites: dict[str, object]) -> None:
    world = World(rewrites=rewrites)
    world.bound_pod(request=BIG)
    assert len(world.jobs) == 1
