"""Tests of the ledger with late, unreadable or unordered news."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.pod_request.constraints.node_constraints import Node
from extender.record.config import PlacementConfig
from extender.record.events import CancelJob, EvictPod, JobsPolled, Outcome, PodObserved, WriteAttempt
from extender.record.placeholder import IllegalMove
from extender.record.states import State
from tests.builders import placeholder_of, pod
from tests.placement import ledger_world
from tests.placement.ledger_world import NODES, VIEW, World, calm_down, kinds


def test_poll_that_began_before_the_grant_does_not_undo_the_grant(world: World) -> None:
    world.bound_pod()
    other = world.bound_pod()
    uid = world.settled_pod()
    world.ask()
    late = world.acting.poll
    assert isinstance(late, JobsPolled)
    world.remove_and_settle(other)
    world.pass_time(0.1)
    world.start_and_poll()
    assert world.state_of(uid) is State.ALLOCATED
    world.acting.poll = late
    world.answer()
    assert world.state_of(uid) is State.ALLOCATED


def test_unreadable_replies_have_no_effect(world: World) -> None:
    """Tests a running Pod and a waiting Pod, without and with a restart of the leader."""
    waiting = world.queued_pod()
    running = next(uid for uid, each in world.pods.items() if each.life.node)
    world.garbled = {world.job_id_of(running), world.job_id_of(waiting)}
    for restarts in (False, True):
        if restarts:
            world.restart()
        for _ in range(2 * world.rules.confirmations):
            done = world.poll()
            world.pass_time(5.0)
            assert not {EvictPod, CancelJob, WriteAttempt} & {*kinds(done)}
    assert world.pods[running].life.node
    world.garbled.clear()
    world.disturb(world.job_id_of(running), "CANCELLED")
    calm_down(world, 40)
    assert running not in world.pods
    assert world.pods[waiting].life.node


def test_an_illegal_move_raises() -> None:
    with pytest.raises(IllegalMove, match="Done -> Bound"):
        placeholder_of(pod(), State.DONE).move(State.BOUND, 0.0)


def test_outcome_of_an_unknown_pod_is_ignored(world: World) -> None:
    world.tell(Outcome(CancelJob("nobody", 1, "p@default", ""), None))
    assert world.effects == []


def test_pod_that_finished_before_it_was_seen_is_ignored(world: World) -> None:
    world.tell(PodObserved(pod(uid="u", phase="Succeeded")))
    assert list(world.ledger.placeholders) == []


def test_a_job_that_was_queued_is_read_once_more_after_its_pod_is_bound() -> None:
    """A killed slurmctld started the job on another node before the first poll."""
    world = World(replace(PlacementConfig(), fast_path=False))
    uid = world.bound_pod()
    job = world.live_jobs(uid)[0]
    other = next(name for name in NODES if name not in job.nodes)
    world.jobs[job.id] = replace(job, nodes=(other,))
    world.disturbed.add(uid)
    world.poll()
    assert uid in world.pods
    world.wait(world.rules.slurmctld_save_time)
    assert uid not in world.pods


def test_job_of_a_pod_resized_before_binding_is_read_at_bind(world: World) -> None:
    uid = world.settled_pod()
    allocated = world.ledger.allocated(uid)
    assert allocated is not None
    assert allocated[0].job.asked.immediate
    world.change_request(uid, cpus=64)
    world.settle()
    resized = world.ledger.allocated(uid)
    assert resized is not None
    assert not resized[0].job.asked.immediate


def test_pod_runs_on_after_its_node_loses_the_label_of_its_slurm_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    uid = world.bound_pod()
    node = world.pods[uid].life.node
    nodes = {name: Node(name, f"other-{name}" if name == node else name, {}) for name in NODES}
    monkeypatch.setattr(ledger_world, "VIEW", replace(VIEW, nodes=nodes))
    world.restart()
    world.outlast(100)
    assert world.pods[uid].life.node == node
    assert world.state_of(uid) is State.BOUND
