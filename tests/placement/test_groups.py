"""A workload of several Pods: one job, one node for each, all of them or none."""

from __future__ import annotations

import pytest

from extender.placement.events import CancelJob, Effect, EvictPod, Submit, WriteAllocation, WriteAttempt
from extender.placement.states import State
from tests.placement.ledger_world import (
    LOST,
    NODES,
    World,
    calm_down,
    ends_well,
)

GROUP = "uid-g1"


def state_of(world: World) -> State | None:
    record = world.ledger.record_of(GROUP)
    return record and record.state


def bind_all(world: World) -> None:
    for uid in sorted(world.pods):
        world.bind(uid)
    world.settle()


def running_group() -> World:
    world = World()
    world.create_group(2)
    world.settle()
    bind_all(world)
    assert state_of(world) is State.BOUND
    return world


def test_no_job_is_asked_for_before_the_last_pod_is_there() -> None:
    world = World()
    first, second = world.create_group(2)
    late = world.pods.pop(second)
    world.news.pop()
    world.settle()
    assert not world.jobs
    record = world.ledger.record_of(first)
    assert record is not None
    assert record.cause is not None
    assert record.cause.message == "waits for 1 more Pods of its group"
    world.write(late)
    done = world.settle()
    (submit,) = (effect for effect in done if isinstance(effect, Submit))
    assert (submit.job.nodes, submit.job.name) == (2, "g1@default")


def test_each_pod_is_bound_to_a_node_of_its_own_by_one_job() -> None:
    world = running_group()
    (job,) = world.jobs.values()
    assert job.state.running
    assert {pod.node for pod in world.pods.values()} == set(NODES) == set(job.nodes)
    assert {pod.job_id for pod in world.pods.values()} == {job.id}


def test_the_job_ends_with_the_last_pod() -> None:
    world = running_group()
    first, second = world.pods
    world.remove_pod(first)
    world.settle()
    assert state_of(world) is State.BOUND
    assert world.running()
    world.remove_pod(second)
    world.settle()
    assert not world.running()


def test_all_pods_are_evicted_when_the_job_ends() -> None:
    world = running_group()
    (job,) = world.jobs.values()
    world.disturb(job.id, "PREEMPTED")
    world.ask()
    world.answer()
    done = world.settle()
    assert [type(effect) for effect in done if isinstance(effect, EvictPod)] == [EvictPod, EvictPod]
    assert not world.pods


def test_a_group_that_loses_a_pod_before_it_runs_gives_its_job_back() -> None:
    world = World()
    first, _ = world.create_group(2)
    world.settle()
    assert state_of(world) is State.ALLOCATED
    world.remove_pod(first)
    done = world.settle()
    assert any(isinstance(effect, CancelJob) for effect in done)
    calm_down(world, 10)
    ends_well(world)


def test_a_group_that_is_bound_in_part_goes_whole() -> None:
    """A Pod that is bound cannot be bound again: its controller makes another one."""
    world = World()
    first, second = world.create_group(2)
    world.settle()
    world.bind(first)
    world.refuse(second, offers=False)
    world.settle()
    world.pass_time(0.3)
    done = world.settle()
    assert {effect.pod.uid for effect in done if isinstance(effect, EvictPod)} == {first, second}
    assert not world.pods


def test_a_group_that_no_node_of_takes_gets_another_job_and_all_pods_its_number() -> None:
    world = World()
    uids = world.create_group(2)
    world.settle()
    for uid in uids:
        world.refuse(uid, offers=False)
    world.settle()
    world.pass_time(0.3)
    done = world.settle()
    assert [effect.attempt for effect in done if isinstance(effect, WriteAttempt)] == [2, 2]
    assert {world.pods[uid].attempt for uid in uids} == {2}


def steps_of_a_life() -> int:
    world = World()
    world.create_group(2)
    return len(world.settle()) + 3


@pytest.mark.parametrize("fate", ["done", "reply lost", "lost"])
@pytest.mark.parametrize("number", range(steps_of_a_life()))
def test_a_crash_at_any_effect_leaves_one_job_and_all_pods_bound_or_none(number: int, fate: str) -> None:
    world = World()
    world.create_group(2)
    while world.news:
        world.hear()
    for _ in range(number):
        if not world.effects:
            bind_all(world)
            break
        finish(world, "done")
        while world.news:
            world.hear()
    if world.effects:
        effect = world.effects[0]
        if fate != "lost":
            world.do(effect)
        if fate == "done":
            world.finish(effect, LOST)
    world.restart()
    calm_down(world, 60)
    ends_well(world)
    assert len({pod.job_id for pod in world.pods.values()}) == 1
    assert all(pod.node for pod in world.pods.values())
    assert len(world.running()) == 1


def finish(world: World, fate: str) -> None:
    effect: Effect = world.effects.pop(0)
    world.finish(effect, world.do(effect) if fate == "done" else LOST)


def test_the_parts_that_are_written_already_stay_as_they_are_after_a_crash() -> None:
    world = World()
    world.create_group(2)
    while world.news:
        world.hear()
    while not any(isinstance(effect, WriteAllocation) for effect in world.effects):
        finish(world, "done")
    write = world.effects[0]
    assert isinstance(write, WriteAllocation)
    world.do(write)
    world.restart()
    world.settle()
    bind_all(world)
    assert world.pods[write.pod.uid].node == write.allocation.node
    assert {pod.node for pod in world.pods.values()} == set(NODES)
