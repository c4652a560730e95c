"""A workload of several Pods: one job, one node for each, all of them or none."""

from __future__ import annotations

import pytest

from extender.placement.events import CancelJob, Effect, EvictPod, Submit, WriteAttempt
from extender.placement.member import Member, with_slots
from extender.placement.states import State
from tests.builders import pod
from tests.placement.ledger_world import (
    LOST,
    NODES,
    World,
    calm_down,
    ends_well,
)
from wellknown.allocation import Allocation

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


def new_group() -> World:
    world = World()
    world.create_group(2)
    return world


def rejected_group() -> World:
    """kube-scheduler has just said that it takes neither Node."""
    world = World()
    uids = world.create_group(2)
    world.settle()
    for uid in uids:
        world.refuse(uid, offers=False)
    world.settle()
    world.pass_time(0.3)
    return world


BEGINNINGS = {"a new group": new_group, "a rejected group": rejected_group}
"""Where a story begins; within six effects the Pods are bound, or wait again."""


@pytest.mark.parametrize("fate", ["done", "reply lost", "lost"])
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_crash_at_any_effect_leaves_one_job_and_all_pods_bound(
    beginning: str, number: int, fate: str
) -> None:
    world = BEGINNINGS[beginning]()
    while world.news:
        world.hear()
    for _ in range(number):
        if world.effects:
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
    calm_down(world, 90)
    ends_well(world)
    assert len({(pod.job_id, pod.attempt) for pod in world.pods.values()}) == 1
    assert all(pod.node for pod in world.pods.values())
    assert len(world.running()) == 1


def finish(world: World, fate: str) -> None:
    effect: Effect = world.effects.pop(0)
    world.finish(effect, world.do(effect) if fate == "done" else LOST)


def test_the_next_leader_numbers_the_pods_that_the_last_one_did_not_come_to() -> None:
    world = rejected_group()
    while not any(isinstance(effect, WriteAttempt) for effect in world.effects):
        finish(world, "done")
    world.do(world.effects[0])
    assert sorted(pod.attempt for pod in world.pods.values()) == [1, 2]
    world.restart()
    done = world.settle()
    assert [effect.attempt for effect in done if isinstance(effect, WriteAttempt)] == [2]
    assert {pod.attempt for pod in world.pods.values()} == {2}
    assert not world.running()


def test_a_pod_keeps_the_node_that_is_written_onto_it() -> None:
    one, other = (Member(pod(name=name, uid=name)) for name in ("p1", "p2"))
    slots = [Allocation(7, "n1", "gpu:1"), Allocation(7, "n2", "gpu:2")]
    written = one._replace(slot=Allocation(7, "n2"))
    assert [each.slot for each in with_slots((one, other), slots)] == slots
    assert [each.slot for each in with_slots((written, other), slots)] == slots[::-1]
