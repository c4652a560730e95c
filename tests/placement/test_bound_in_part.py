"""A gang whose first Pod is bound while the extender gives the job back: the gang keeps the job if the
job may still bind the other Pods."""

from __future__ import annotations

from extender.record.config import PlacementConfig
from extender.record.events import CheckDepartures, WriteAttempt
from extender.record.states import State
from tests.placement.ledger_world import World, calm_down, ends_well, of_kind
from tests.placement.test_groups import bind_all, members_of, record_of, rejected_group, state_of


def test_late_replica_evicts_no_gang_that_another_replica_has_bound() -> None:
    """The late replica knows that the gang waits in Slurm's queue, and then hears all later news: a
    missing claim, the claim, the allocations, and one Binding after the other."""
    world = World(PlacementConfig(fast_path=False), nodes=("n1", "n2"))
    first, second = world.create_group(2)
    world.settle()
    world.claim(first, missing=True)
    world.claim(first, missing=False)
    world.fail_over()
    world.catch_up_with_slurm()
    bind_all(world)
    world.swap()
    assert state_of(world) is State.QUEUED
    world.hear()
    assert state_of(world) is State.REPLACING
    while not record_of(world).bound_pods:
        world.hear()
    assert not record_of(world).all_bound
    world.settle()
    assert state_of(world) is State.BOUND
    calm_down(world)
    ends_well(world)
    assert members_of(world) == [first, second]


def replaced_during_the_bindings() -> tuple[World, tuple[str, str]]:
    """Returns a world in which both Bindings of a gang are under way while the extender gives the job
    back, and the uids of the gang."""
    world = rejected_group()
    first, second = world.pods
    for uid in world.pods:
        world.begin_binding(uid)
    world.carry_out(world.take(CheckDepartures))
    assert state_of(world) is State.REPLACING
    return world, (first, second)


def test_gang_keeps_its_job_if_all_bindings_are_faster() -> None:
    world, both = replaced_during_the_bindings()
    for uid in both:
        world.finish_binding(uid)
        world.hear()
    world.settle()
    assert state_of(world) is State.BOUND
    assert tuple(world.pods) == both


def test_gang_is_evicted_at_once_if_a_pod_has_the_number_of_the_next_attempt() -> None:
    world, (first, second) = replaced_during_the_bindings()
    write = next(each for each in of_kind(world.effects, WriteAttempt) if each.pod.uid == second)
    world.effects.remove(write)
    world.carry_out(write)
    world.finish_binding(first)
    world.hear_all()
    assert state_of(world) is State.EVICTING
    world.wait(1.1, times=2)
    assert not world.pods


def test_gang_is_evicted_after_the_deadline_if_no_other_pod_is_bound() -> None:
    world, (first, _) = replaced_during_the_bindings()
    world.finish_binding(first)
    world.hear()
    assert state_of(world) is State.ALLOCATED
    world.unbindable.update(world.pods)
    world.outlast(int(world.rules.unbound_deadline) + 2)
    assert not world.pods
