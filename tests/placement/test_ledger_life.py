"""Tests of the ledger from the first attempt of a Pod to the allocation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.sentences import sentence
from extender.pod_request.constraints.node_constraints import Node
from extender.record.config import PlacementConfig
from extender.record.events import (
    CancelJob,
    ClusterObserved,
    Failure,
    ReadJob,
    Remedy,
    ReportWaiting,
    Submit,
    WriteAllocation,
    WriteAttempt,
)
from extender.record.states import State
from tests.placement.ledger_world import VIEW, World, kinds, of_kind, only
from wellknown.names import GATE


@pytest.mark.parametrize("tells_grants", [True, False])
def test_idle_cluster_grants_at_once_and_the_allocation_is_written(tells_grants: bool) -> None:
    world = World(tells_grants=tells_grants)
    uid = world.create_pod()
    done = world.settle()
    # The ledger reads the first job of each partition, to check the key.
    assert kinds(done) == [Submit, ReadJob, WriteAllocation]
    assert isinstance(done[0], Submit)
    assert done[0].immediate
    assert world.pods[uid].scheduling.allocation is not None
    assert not world.pods[uid].gated
    world.create_pod()
    assert kinds(world.settle()) == [Submit, *([] if tells_grants else [ReadJob]), WriteAllocation]


def test_written_allocation_is_known_before_the_watch_shows_it(world: World) -> None:
    """kube-scheduler may see the written allocation as early as the watch."""
    uid = world.create_pod()
    world.hear()
    world.carry_out_all()
    assert world.news
    known = world.ledger.allocated(uid)
    assert known is not None
    assert known[1].pod.resource_version == world.pods[uid].resource_version
    assert not known[1].pod.gated
    world.settle()
    heard = world.ledger.allocated(uid)
    assert heard is not None
    assert heard[1].pod == known[1].pod


def test_pod_that_reported_waiting_also_reports_its_allocation(world: World) -> None:
    world.bound_pod()
    first = world.bound_pod()
    uid = world.settled_pod()
    assert kinds(world.wait(world.rules.report_after + 0.1)) == [ReadJob, ReportWaiting]
    world.remove_and_settle(first)
    world.schedule()
    (written,) = of_kind(world.poll(), WriteAllocation)
    assert written.learned_at == world.now, "and what it got, by an Event"
    assert (written.uid, written.nominate) == (uid, True)


def test_node_is_nominated_only_in_a_large_cluster() -> None:
    many_enough = PlacementConfig().nominate_from
    for known, nominate in ((many_enough - 1, False), (many_enough, True)):
        world = World()
        many = {f"x{n}": Node(f"x{n}", f"x{n}", {}) for n in range(known - len(VIEW.nodes))}
        world.tell(ClusterObserved(replace(VIEW, nodes=dict(VIEW.nodes) | many)))
        world.create_pod()
        (written,) = of_kind(world.settle(), WriteAllocation)
        assert written.nominate is nominate
        assert written.learned_at is None, "it was told nothing"


def test_pod_without_room_is_queued_and_not_overtaken(world: World) -> None:
    world.bind_a_pod_to_each_node()
    uid = world.create_pod()
    first, second = of_kind(world.settle(), Submit)
    assert (first.immediate, second.immediate) == (True, False)
    assert first.job_id != second.job_id
    assert world.state_of(uid) is State.QUEUED
    world.create_pod()
    (behind,) = of_kind(world.settle(), Submit)
    assert not behind.immediate


def test_full_partition_gets_no_immediate_request_for_a_while(world: World) -> None:
    uid = world.queued_pod()
    world.remove_and_settle(uid)
    world.create_pod()
    assert [e.immediate for e in world.settle() if isinstance(e, Submit)] == [False]


def test_immediate_job_that_slurm_queues_anyway_is_queued(world: World) -> None:
    """With EnforcePartLimits=NO, Slurm queues a job over a limit of the partition, even an immediate
    job."""
    uid, effect = world.pod_and_submission()
    world.do(replace(effect, immediate=False))
    world.finish(effect, None)
    world.settle()
    assert world.state_of(uid) is State.QUEUED


def test_turns_go_by_priority_and_then_by_age() -> None:
    world = World(PlacementConfig(window=1, fast_path=False))
    turn = world.settled_pod()
    low, high, late_high = world.create_pod(0), world.create_pod(9), world.create_pod(9)
    assert world.settle() == []
    order = []
    for _ in range(3):
        world.remove_pod(turn)
        turn = next(effect.uid for effect in world.settle() if isinstance(effect, Submit))
        order.append(turn)
    assert order == [high, late_high, low]


def test_a_repeated_submission_finds_its_own_job(world: World) -> None:
    uid, effect = world.pod_and_submission()
    world.do(effect)
    world.finish(effect, Failure(Remedy.AGAIN, "timeout"))
    world.wait(1.0)
    assert world.state_of(uid) is State.ALLOCATED
    assert len(world.live_jobs(uid)) == 1


def test_a_pod_that_is_edited_while_its_job_waits_gets_another_job(world: World) -> None:
    uid = world.queued_pod()
    (first,) = world.live_jobs(uid)
    world.edit(uid)
    assert kinds(world.settle())[:2] == [WriteAttempt, CancelJob]
    submitted = next(e for e in world.poll() if isinstance(e, Submit))
    assert "edited" in (submitted.job.comment or "")
    (second,) = world.live_jobs(uid)
    assert second.id != first.id


def test_a_pod_that_is_edited_after_its_allocation_keeps_it(world: World) -> None:
    uid = world.settled_pod()
    world.edit(uid)
    assert world.settle() == []
    assert world.state_of(uid) is State.ALLOCATED


def test_pod_with_another_gate_gets_no_job_until_the_gate_is_removed(world: World) -> None:
    uid = world.create_pod()
    world.change_pod(uid, gates=(*world.pods[uid].scheduling.gates, "kueue.x-k8s.io/admission"))
    world.acting.news = world.news[-1:]
    told = only(world.settle(), ReportWaiting)
    assert "kueue.x-k8s.io/admission" in sentence(told.cause)
    world.change_and_settle(uid, gates=(GATE,))
    assert world.state_of(uid) is State.ALLOCATED


def test_late_reply_to_a_cancel_does_not_delay_the_next_attempt(world: World) -> None:
    uid = world.settled_pod()
    world.pass_time(world.rules.unbound_deadline + 1)
    attempt = world.effects.pop(0)
    world.carry_out(attempt)
    world.hear_all()
    (cancel,) = world.effects
    world.acting.effects = []
    world.do(cancel)
    world.poll_alone()
    world.finish(cancel, None)
    world.settle()
    world.look(uid)
    world.settle()
    assert world.state_of(uid) is State.ALLOCATED
