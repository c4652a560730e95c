"""Tests of Pods on which a user has written another job id or another attempt."""

from __future__ import annotations

from dataclasses import replace

from extender.record.events import RecordJobId
from extender.record.states import State
from tests.builders import changed
from tests.placement.ledger_world import World
from tests.placement.test_lost_keys import outlast


def bound_at_the_second_attempt(world: World) -> tuple[str, int, int]:
    """Returns a bound Pod, the ended job of the first attempt, and the job of the second attempt.
    kube-scheduler rejected the first Node, so the Pod is bound to another Node."""
    uid = world.settled_pod()
    first = world.job_id_of(uid)
    world.refuse(uid, offers=True)
    world.settle()
    while not world.pods[uid].life.node:
        world.pass_time(1.0)
        world.catch_up()
    second = world.job_id_of(uid)
    assert world.pods[uid].life.node == world.jobs[second].nodes[0] != world.jobs[first].nodes[0]
    return uid, first, second


def name(world: World, uid: str, job_id: int) -> None:
    pod = world.pods[uid]
    assert pod.scheduling.allocation is not None
    world.write(
        changed(pod, job_id=job_id, allocation=replace(pod.scheduling.allocation, job_id=job_id))
    )


def test_next_leader_ignores_a_forged_job_id(world: World) -> None:
    uid, first, second = bound_at_the_second_attempt(world)
    name(world, uid, first)
    world.news.clear()  # no replica led at the time of the write
    world.restart()
    outlast(world, 70)
    assert world.jobs[second].state.running
    assert world.job_id_of(uid) == second
    assert world.pods[uid].scheduling.job_id == second


def test_forged_job_id_is_corrected_at_intervals(world: World) -> None:
    uid, job_id = world.bound_pod_and_job()
    written = 0
    for _ in range(100):
        name(world, uid, job_id + 1)
        written += sum(isinstance(effect, RecordJobId) for effect in world.settle())
        world.pass_time(world.rules.job_id_rewrite_pause / 10)
    assert 9 <= written <= 11
    outlast(world, 2 * int(world.rules.job_id_rewrite_pause))
    assert world.pods[uid].scheduling.job_id == job_id


def test_forged_attempt_of_a_queued_pod_ends_only_its_own_job(world: World) -> None:
    uid = world.queued_pod()
    first, others = world.job_id_of(uid), {job.id for job in world.jobs.values() if job.state.running}
    world.change_pod(uid, attempt=3)
    outlast(world, 70)
    assert world.jobs[first].state.ended
    assert world.job_id_of(uid) != first
    assert {job.id for job in world.jobs.values() if job.state.running} == others


def test_forged_attempt_does_not_move_a_bound_pod(world: World) -> None:
    uid, job_id = world.bound_pod_and_job()
    world.change_pod(uid, attempt=3)
    outlast(world, 70)
    assert world.job_id_of(uid) == job_id
    assert world.pods[uid].life.node is not None


def test_pod_bound_together_with_a_forged_attempt_keeps_its_job(world: World) -> None:
    """The same version of the Pod shows the Binding and the forged attempt. The Pod's job is the job of
    the Binding."""
    uid = world.settled_pod()
    job_id = world.job_id_of(uid)
    world.change_and_settle(uid, node="n1", attempt=2)
    assert world.state_of(uid) is State.BOUND
    outlast(world, 70)
    assert (world.job_id_of(uid), world.pods[uid].life.node) == (job_id, "n1")


def test_invalid_pod_corrected_with_a_forged_attempt_gets_a_job(world: World) -> None:
    uid = world.create_pod()
    pod = world.pods[uid]
    world.edit(uid, forbidden=True)
    outlast(world, 70)
    assert world.state_of(uid) is State.INVALID
    before = set(world.jobs)
    world.change_pod(uid, attempt=world.pods[uid].scheduling.attempt + 1, request=pod.request)
    outlast(world, 70)
    assert set(world.jobs) - before
