"""Pods on which somebody has written the id of another job of theirs, or the number of an attempt."""

from __future__ import annotations

from dataclasses import replace

from extender.record.events import RecordJobId
from extender.record.states import State
from tests.builders import changed
from tests.placement.ledger_steps import (
    bound_pod,
    job_id_of,
    pod_that_finds_no_room,
    settle,
    state_of,
)
from tests.placement.ledger_world import World
from tests.placement.test_lost_keys import outlast


def bound_at_the_second_attempt(world: World) -> tuple[str, int, int]:
    """A Pod, its first job, which kube-scheduler refused and which has ended, and the one by which it
    was bound on another Node."""
    uid = world.create_pod()
    settle(world)
    first = job_id_of(world, uid)
    world.refuse(uid, offers=True)
    settle(world)
    while not world.pods[uid].life.node:
        world.pass_time(1.0)
        world.catch_up()
    second = job_id_of(world, uid)
    assert world.pods[uid].life.node == world.jobs[second].nodes[0] != world.jobs[first].nodes[0]
    return uid, first, second


def name(world: World, uid: str, job_id: int) -> None:
    pod = world.pods[uid]
    assert pod.scheduling.allocation is not None
    world.write(
        changed(pod, job_id=job_id, allocation=replace(pod.scheduling.allocation, job_id=job_id))
    )


def test_the_next_leader_believes_no_forged_job_id() -> None:
    world = World()
    uid, first, second = bound_at_the_second_attempt(world)
    name(world, uid, first)
    world.news.clear()  # nobody led then
    world.restart()
    outlast(world, 70)
    assert world.jobs[second].state.running
    assert job_id_of(world, uid) == second
    assert world.pods[uid].scheduling.job_id == second


def test_a_forged_job_id_is_corrected_again_and_again_but_not_at_once() -> None:
    world = World()
    uid = bound_pod(world)
    job_id = job_id_of(world, uid)
    written = 0
    for _ in range(100):
        name(world, uid, job_id + 1)
        written += sum(isinstance(effect, RecordJobId) for effect in settle(world))
        world.pass_time(world.rules.renote / 10)
    assert 9 <= written <= 11
    outlast(world, 2 * int(world.rules.renote))
    assert world.pods[uid].scheduling.job_id == job_id


def test_a_forged_attempt_costs_the_pod_that_waits_its_own_job_and_nobody_else_anything() -> None:
    world = World()
    uid = pod_that_finds_no_room(world)
    first, others = job_id_of(world, uid), {job.id for job in world.jobs.values() if job.state.running}
    world.write(changed(world.pods[uid], attempt=3))
    outlast(world, 70)
    assert world.jobs[first].state.ended
    assert job_id_of(world, uid) != first
    assert {job.id for job in world.jobs.values() if job.state.running} == others


def test_a_forged_attempt_moves_no_pod_that_is_bound() -> None:
    world = World()
    uid = bound_pod(world)
    job_id = job_id_of(world, uid)
    world.write(changed(world.pods[uid], attempt=3))
    outlast(world, 70)
    assert job_id_of(world, uid) == job_id
    assert world.pods[uid].life.node is not None


def test_a_pod_that_is_bound_with_a_wrong_attempt_at_once_is_bound() -> None:
    """The same version of it says both: its job is the one that it was bound by."""
    world = World()
    uid = world.create_pod()
    settle(world)
    job_id = job_id_of(world, uid)
    world.write(changed(world.pods[uid], node="n1", attempt=2))
    settle(world)
    assert state_of(world, uid) is State.BOUND
    outlast(world, 70)
    assert (job_id_of(world, uid), world.pods[uid].life.node) == (job_id, "n1")


def test_an_invalid_pod_that_is_mended_and_numbered_at_once_is_asked_for() -> None:
    world = World()
    uid = world.create_pod()
    pod = world.pods[uid]
    world.edit(uid, forbidden=True)
    outlast(world, 70)
    assert state_of(world, uid) is State.INVALID
    before = set(world.jobs)
    world.write(
        changed(world.pods[uid], attempt=world.pods[uid].scheduling.attempt + 1, request=pod.request)
    )
    outlast(world, 70)
    assert set(world.jobs) - before
