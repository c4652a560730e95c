"""Tests of a group of Pods while the ledger replaces the group's job."""

from __future__ import annotations

from extender.placement.transitions import on_pod
from extender.record.config import Context
from extender.record.states import State
from tests.builders import cause_of, changed
from tests.placement.test_groups import group_of_three, record_of
from wellknown.names import Reason


def test_group_partly_bound_during_replacement_is_evicted_as_a_whole() -> None:
    """/bind binds a Pod of the group before the ledger has written the next attempt onto this Pod, but
    not before the other Pods have the next attempt."""
    for given, reason in ((None, Reason.POD_OF_GANG_GONE), (Reason.CHANGED, Reason.CHANGED)):
        world = group_of_three()
        cause = None if given is None else cause_of(given)
        record = record_of(world).replaced(0.0, cause)
        record = record.with_writes(record.pods[1:], done=True)
        first = record.members[0]
        assert first.slot is not None
        bound = changed(first.pod, node=first.slot.node)
        at = Context(1.0, world.rules, world.view)
        left = on_pod.bound_by_its_job(record.with_member(bound, pod=bound), bound, at)
        assert left.state is State.EVICTING
        assert left.cause is not None
        assert left.cause.reason == reason


def test_allocation_with_a_bound_pod_is_not_replaced() -> None:
    """A bound Pod cannot be bound again."""
    world = group_of_three()
    record = record_of(world)
    assert record.replaced(1.0, None).state is State.REPLACING
    first = record.members[0]
    bound = changed(first.pod, node="n1")
    assert record.with_member(bound, pod=bound).replaced(1.0, None).state is State.EVICTING
