"""Tests of Pods with frequent writes by other clients. The ledger still writes to the Pods and evicts
the Pods in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from extender.record.config import PlacementConfig
from extender.record.events import CancelJob, EvictPod, WriteAllocation, WriteAttempt
from extender.record.states import State
from tests.builders import changed
from tests.placement.ledger_world import LOST, World, of_kind
from tests.placement.test_lost_keys import queued_big_pod

VERSIONED = (EvictPod, WriteAllocation, WriteAttempt)


def outwritten(world: World, uid: str, seconds: float = 60.0) -> None:
    """Lets another client annotate the Pod just before each write of the ledger."""
    assert uid in world.pods
    end = world.now + seconds
    while world.now < end and uid in world.pods:
        for _ in range(10):
            world.outwrite()
            world.hear_all()
            others = [effect for effect in world.effects if not isinstance(effect, VERSIONED)]
            for effect in others:
                world.effects.remove(effect)
                world.carry_out(effect)
                world.hear_all()
        world.pass_time(1.0)
        world.schedule()
        world.poll_alone()


def without_its_job(world: World) -> str:
    uid = world.bound_pod()
    world.lose_job(uid, "PREEMPTED")
    return uid


@pytest.mark.parametrize("heard", [True, False])
def test_eviction_is_not_delayed_by_one_write_in_between(world: World, heard: bool) -> None:
    """Another client, such as a kubelet or a controller, may write to the Pod. The ledger sees this
    write before or after the conflict."""
    uid = without_its_job(world)
    if heard:
        world.write(world.pods[uid])
        world.hear_all()
    else:
        world.outwrite()
    world.settle()
    assert uid not in world.pods


def test_writes_to_a_bound_pod_do_not_delay_its_eviction(world: World) -> None:
    uid = without_its_job(world)
    outwritten(world, uid)
    assert uid not in world.pods
    assert world.now < 5.0


def unbound_without_its_job(world: World, *, gated: bool) -> str:
    """Creates a Pod with a job whose time limit ends before the Pod is bound."""
    uid = world.queued_pod() if gated else world.settled_pod()
    assert world.pods[uid].gated is gated
    world.lose_job(uid, "TIMEOUT")
    return uid


@pytest.mark.parametrize("gated", [True, False])
def test_writes_to_an_unbound_pod_do_not_delay_its_eviction(world: World, gated: bool) -> None:
    """Until the deletion, kube-scheduler may bind the Pod to the Node of the ended job. Therefore no
    other job gets the Node."""
    uid = unbound_without_its_job(world, gated=gated)
    outwritten(world, uid, 10.0)
    assert uid not in world.pods
    assert world.now < 5.0


def test_pod_placed_again_by_another_replica_is_not_evicted(world: World) -> None:
    """Another replica has placed the Pod again after the end of the job. The replica that acts does not
    know the next job yet."""
    uid = unbound_without_its_job(world, gated=False)
    for _ in range(3):
        world.outwrite()
        world.hear_all()
    anew = changed(world.pods[uid], attempt=2, allocation=None, job_id=None)
    world.write(anew)
    world.news.clear()
    eviction = world.take(EvictPod)
    assert eviction.in_this_attempt
    world.carry_out(eviction)
    assert uid in world.pods


def test_writes_do_not_delay_the_eviction_for_a_requeued_job(world: World) -> None:
    uid = world.bound_pod()
    job = world.jobs[world.job_id_of(uid)]
    world.disturb(job.id, "PENDING")
    world.jobs[job.id] = replace(world.jobs[job.id], restart_count=1, nodes=())
    world.poll_alone()
    outwritten(world, uid)
    assert uid not in world.pods


def test_eviction_keeps_its_version_check_after_few_conflicts(world: World) -> None:
    """An eviction in any version of the Pod could carry out an old decision of a replica without recent
    news."""
    without_its_job(world)
    for _ in range(2):
        (eviction,) = of_kind(world.effects, EvictPod)
        assert not eviction.in_any_version
        world.outwrite()
        world.hear_all()


def test_one_late_version_counts_as_one_conflict(world: World) -> None:
    uid = without_its_job(world)
    world.outwrite()
    for _ in range(10):  # the watch delivers no version
        world.pass_time(1.0)
        eviction = world.take(EvictPod)
        assert not eviction.in_any_version
        world.carry_out(eviction)
    world.settle()
    assert uid not in world.pods


def wrong_job(world: World) -> tuple[str, int]:
    """Creates a waiting Pod whose job has fewer CPUs, because the owner changed the job. Slurm can start
    the job."""
    uid, job_id = queued_big_pod(world)
    world.change_job(job_id, cpus_allocated=1)
    world.remove_and_settle("u1")
    return uid, job_id


def test_writes_to_a_gated_pod_do_not_keep_a_job_to_be_replaced(world: World) -> None:
    uid, job_id = wrong_job(world)
    outwritten(world, uid)
    assert world.jobs[job_id].state.ended
    assert not list(world.ledger.holding("n1"))  # Slurm may give the node to other jobs
    world.settle()
    assert world.state_of(uid) is not State.REPLACING


def test_job_is_cancelled_once_and_not_at_every_write(world: World) -> None:
    uid, job_id = wrong_job(world)
    world.schedule()
    world.poll_alone()
    asked = 0
    for _ in range(50):
        world.outwrite()
        world.hear_all()
        for effect in tuple(world.effects):
            if not isinstance(effect, VERSIONED):
                asked += isinstance(effect, CancelJob)
                world.effects.remove(effect)
                cancels = isinstance(effect, CancelJob)  # the cancel has no effect
                world.finish(effect, None if cancels else world.do(effect))
        world.write(world.pods[uid])
    assert (asked, world.state_of(uid)) == (1, State.REPLACING)
    assert world.jobs[job_id].state.running


def test_job_of_an_ungated_pod_is_kept_until_the_next_attempt(world: World) -> None:
    """kube-scheduler may be binding the Pod already."""
    uid = world.settled_pod()
    job_id = world.job_id_of(uid)
    world.refuse(uid, offers=True)
    outwritten(world, uid, 3.0)
    world.begin_binding(uid)
    world.finish_binding(uid)
    world.settle()
    assert world.pods[uid].life.node
    assert world.jobs[job_id].state.running
    assert world.state_of(uid) is State.BOUND


def test_allocation_that_conflicts_keep_unwritten_is_given_back(world: World) -> None:
    uid = world.create_pod()
    world.hear_all()
    outwritten(world, uid, world.rules.unbound_deadline - 1.0)
    (job,) = world.live_jobs(uid)
    assert job.state.running
    assert world.state_of(uid) is State.ALLOCATED
    outwritten(world, uid, 10.0)
    assert world.jobs[job.id].state.ended
    assert not list(world.ledger.holding(job.nodes[0]))


def fail_to_write(world: World) -> None:
    """Makes all writes to kube-apiserver fail. Slurm still answers."""
    for effect in tuple(world.effects):
        world.effects.remove(effect)
        world.finish(effect, LOST if isinstance(effect, VERSIONED) else world.do(effect))


def away(world: World, uid: str) -> None:
    """For a second, another client writes before each write of the ledger. After this second,
    kube-apiserver does not answer."""
    outwritten(world, uid, 1.0)
    end = world.now + world.rules.unbound_deadline + 6.0
    while world.now < end:
        fail_to_write(world)
        world.pass_time(1.0)
        world.poll_alone()
    assert uid in world.pods


def kept_from_writing(world: World, uid: str) -> None:
    outwritten(world, uid, world.rules.unbound_deadline + 6.0)


@pytest.mark.parametrize("hinder", [kept_from_writing, away])
def test_pod_is_placed_after_its_allocation_can_be_written(
    hinder: Callable[[World, str], None],
) -> None:
    """The Pod still has the scheduling gate, so the ledger does not wait for kube-scheduler."""
    world = World()
    uid = world.create_pod()
    world.hear_all()
    hinder(world, uid)
    for _ in range(5):
        world.catch_up()
        world.pass_time(1.0)
    assert (world.pods[uid].scheduling.attempt, world.started[uid]) == (2, 2)
    assert world.pods[uid].life.node


def test_missing_reply_of_kube_apiserver_is_no_conflict(world: World) -> None:
    """Without replies, the Pods keep their allocations until kube-apiserver answers again."""
    uid = world.create_pod()
    world.hear_all()
    for _ in range(300):
        fail_to_write(world)
        world.pass_time(1.0)
    assert world.state_of(uid) is State.ALLOCATED


def test_next_leader_keeps_a_pod_whose_job_was_cancelled_for_replacement() -> None:
    """Other clients write to the Pod all the time, so the job ends before the ledger can write the next
    attempt."""
    world = World(PlacementConfig(fast_path=False))
    uid = world.settled_pod()
    world.edit(uid, 2001)
    while not of_kind(world.effects, CancelJob):
        world.hear_all()
        world.outwrite()
        world.pass_time(1.0)
    (cancel,) = world.effects
    world.effects.clear()
    world.carry_out(cancel)
    assert not world.live_jobs(uid)
    world.restart_and_settle()
    assert world.pods[uid].scheduling.attempt == 2
    (job,) = world.live_jobs(uid)
    assert job.user_id == 2001
