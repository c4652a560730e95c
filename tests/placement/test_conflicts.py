"""Pods that others write to: what is to be written or deleted is neither late nor put off for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from extender.record.config import PlacementConfig
from extender.record.events import CancelJob, EvictPod, WriteAllocation, WriteAttempt
from extender.record.states import State
from tests.builders import changed
from tests.placement.ledger_steps import bound_pod, job_id_of, settle, settle_news, state_of
from tests.placement.ledger_world import LOST, World
from tests.placement.test_lost_keys import big

VERSIONED = (EvictPod, WriteAllocation, WriteAttempt)


def outwritten(world: World, uid: str, seconds: float = 60.0) -> None:
    """Somebody annotates the Pod just before each of our writes, and is never late."""
    assert uid in world.pods
    end = world.now + seconds
    while world.now < end and uid in world.pods:
        for _ in range(10):
            world.outwrite()
            settle_news(world)
            others = [effect for effect in world.effects if not isinstance(effect, VERSIONED)]
            for effect in others:
                world.effects.remove(effect)
                world.finish(effect, world.do(effect))
                settle_news(world)
        world.pass_time(1.0)
        world.schedule()
        poll_alone(world)


def poll_alone(world: World) -> None:
    world.ask()
    world.answer()


def without_its_job(world: World) -> str:
    uid = bound_pod(world)
    world.disturb(job_id_of(world, uid), "PREEMPTED")
    world.ask()
    world.answer()
    return uid


@pytest.mark.parametrize("heard", [True, False])
def test_one_write_in_between_costs_an_eviction_no_second(heard: bool) -> None:
    """A kubelet's, or that of a controller; heard before the conflict or after it."""
    world = World()
    uid = without_its_job(world)
    if heard:
        world.write(world.pods[uid])
        settle_news(world)
    else:
        world.outwrite()
    settle(world)
    assert uid not in world.pods


def test_whoever_keeps_writing_to_a_bound_pod_does_not_put_its_eviction_off() -> None:
    world = World()
    uid = without_its_job(world)
    outwritten(world, uid)
    assert uid not in world.pods
    assert world.now < 5.0


def unbound_without_its_job(world: World, *, gated: bool) -> str:
    """A Pod whose job's time is over before it is bound."""
    if gated:
        bound_pod(world)
        bound_pod(world)
    uid = world.create_pod()
    settle(world)
    assert world.pods[uid].gated is gated
    world.disturb(job_id_of(world, uid), "TIMEOUT")
    world.ask()
    world.answer()
    return uid


@pytest.mark.parametrize("gated", [True, False])
def test_whoever_keeps_writing_to_a_pod_that_is_not_bound_does_not_put_its_eviction_off(
    gated: bool,
) -> None:
    """Until it is deleted it may be bound to what its job had: nobody else gets that."""
    world = World()
    uid = unbound_without_its_job(world, gated=gated)
    outwritten(world, uid, 10.0)
    assert uid not in world.pods
    assert world.now < 5.0


def test_a_pod_that_another_replica_has_placed_anew_is_not_evicted_for_that() -> None:
    """Its job was over since that replica replaced it, and this one has not heard of the next."""
    world = World()
    uid = unbound_without_its_job(world, gated=False)
    for _ in range(3):
        world.outwrite()
        settle_news(world)
    anew = changed(world.pods[uid], attempt=2, allocation=None, job_id=None)
    world.write(anew)
    world.news.clear()
    (eviction,) = [effect for effect in world.effects if isinstance(effect, EvictPod)]
    assert eviction.in_this_attempt
    world.effects.remove(eviction)
    world.finish(eviction, world.do(eviction))
    assert uid in world.pods


def test_a_requeued_job_is_no_way_round_that() -> None:
    world = World()
    uid = bound_pod(world)
    job = world.jobs[job_id_of(world, uid)]
    world.disturb(job.id, "PENDING")
    world.jobs[job.id] = replace(world.jobs[job.id], restart_count=1, nodes=())
    world.ask()
    world.answer()
    outwritten(world, uid)
    assert uid not in world.pods


def test_a_pod_is_evicted_as_it_was_seen_as_long_as_few_write_to_it() -> None:
    """What a replica decided that has heard nothing for a while is not to be done."""
    world = World()
    without_its_job(world)
    for _ in range(2):
        (eviction,) = [effect for effect in world.effects if isinstance(effect, EvictPod)]
        assert not eviction.in_any_version
        world.outwrite()
        settle_news(world)


def test_one_version_that_is_late_in_coming_is_one_conflict() -> None:
    world = World()
    uid = without_its_job(world)
    world.outwrite()
    for _ in range(10):  # the watch hangs
        world.pass_time(1.0)
        (eviction,) = [effect for effect in world.effects if isinstance(effect, EvictPod)]
        assert not eviction.in_any_version
        world.effects.remove(eviction)
        world.finish(eviction, world.do(eviction))
    settle(world)
    assert uid not in world.pods


def wrong_job(world: World) -> tuple[str, int]:
    """A Pod that waits, whose job was made smaller by its owner, and can start."""
    bound_pod(world)
    bound_pod(world)
    uid = big(world)
    settle(world)
    job_id = job_id_of(world, uid)
    world.change_job(job_id, cpus_allocated=1)
    world.remove_pod("u1")
    settle(world)
    return uid, job_id


def test_whoever_keeps_writing_to_a_pod_with_a_gate_keeps_no_job_that_is_to_be_replaced() -> None:
    world = World()
    uid, job_id = wrong_job(world)
    outwritten(world, uid)
    assert world.jobs[job_id].state.ended
    assert not list(world.ledger.holding("n1"))  # Slurm may give the node to others
    settle(world)
    assert state_of(world, uid) is not State.REPLACING


def test_slurm_is_not_asked_for_an_end_at_every_write() -> None:
    world = World()
    uid, job_id = wrong_job(world)
    world.schedule()
    world.ask()
    world.answer()
    asked = 0
    for _ in range(50):
        world.outwrite()
        settle_news(world)
        for effect in tuple(world.effects):
            if not isinstance(effect, VERSIONED):
                asked += isinstance(effect, CancelJob)
                world.effects.remove(effect)
                cancels = isinstance(effect, CancelJob)  # without effect
                world.finish(effect, None if cancels else world.do(effect))
        world.write(world.pods[uid])
    assert (asked, state_of(world, uid)) == (1, State.REPLACING)
    assert world.jobs[job_id].state.running


def test_the_job_of_a_pod_without_a_gate_is_not_ended_before_its_next_attempt_is_written() -> None:
    """A Binding may be under way."""
    world = World()
    uid = world.create_pod()
    settle(world)
    job_id = job_id_of(world, uid)
    world.refuse(uid, offers=True)
    outwritten(world, uid, 3.0)
    world.begin_binding(uid)
    world.finish_binding(uid)
    settle(world)
    assert world.pods[uid].life.node
    assert world.jobs[job_id].state.running
    assert state_of(world, uid) is State.BOUND


def test_an_allocation_that_others_keep_us_from_writing_is_given_back() -> None:
    world = World()
    uid = world.create_pod()
    settle_news(world)
    outwritten(world, uid, world.rules.unbound_deadline - 1.0)
    (job,) = world.live_jobs(uid)
    assert job.state.running
    assert state_of(world, uid) is State.ALLOCATED
    outwritten(world, uid, 10.0)
    assert world.jobs[job.id].state.ended
    assert not list(world.ledger.holding(job.nodes[0]))


def away(world: World, uid: str) -> None:
    """Somebody else was faster for a second; then kube-apiserver does not answer."""
    outwritten(world, uid, 1.0)
    end = world.now + world.rules.unbound_deadline + 6.0
    while world.now < end:
        for effect in tuple(world.effects):
            world.effects.remove(effect)
            world.finish(effect, LOST if isinstance(effect, VERSIONED) else world.do(effect))
        world.pass_time(1.0)
        poll_alone(world)
    assert uid in world.pods


def kept_from_writing(world: World, uid: str) -> None:
    outwritten(world, uid, world.rules.unbound_deadline + 6.0)


@pytest.mark.parametrize("hinder", [kept_from_writing, away])
def test_a_pod_whose_allocation_could_not_be_written_is_placed_once_it_can(
    hinder: Callable[[World, str], None],
) -> None:
    """It has its gate still: kube-scheduler, which never looks at it, is not waited for."""
    world = World()
    uid = world.create_pod()
    settle_news(world)
    hinder(world, uid)
    for _ in range(5):
        world.catch_up()
        world.pass_time(1.0)
    assert (world.pods[uid].scheduling.attempt, world.started[uid]) == (2, 2)
    assert world.pods[uid].life.node


def test_a_kubernetes_that_does_not_answer_is_no_conflict() -> None:
    """Its Pods keep what Slurm gave them until it is back."""
    world = World()
    uid = world.create_pod()
    settle_news(world)
    for _ in range(300):
        for effect in tuple(world.effects):
            world.effects.remove(effect)
            world.finish(effect, LOST if isinstance(effect, VERSIONED) else world.do(effect))
        world.pass_time(1.0)
    assert state_of(world, uid) is State.ALLOCATED


def test_a_pod_whose_job_we_ended_to_replace_it_is_not_evicted_by_the_next_leader() -> None:
    """Others write to it all the time: its job is ended before the next attempt can be numbered."""
    world = World(PlacementConfig(fast_path=False))
    uid = world.create_pod()
    world.settle()
    world.edit(uid, 2001)
    while not any(isinstance(effect, CancelJob) for effect in world.effects):
        while world.news:
            world.hear()
        world.outwrite()
        world.pass_time(1.0)
    (cancel,) = world.effects
    world.effects.clear()
    world.finish(cancel, world.do(cancel))
    assert not world.live_jobs(uid)
    world.restart()
    world.settle()
    assert world.pods[uid].scheduling.attempt == 2
    (job,) = world.live_jobs(uid)
    assert job.user_id == 2001
