"""What the ledger does where slurmctld has forgotten a job, or its start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.sentences import sentence
from extender.placement.ledger import Ledger
from extender.record.events import ClusterObserved, ExcludeNodes, OrphanFound, Submit
from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.model import JobState
from tests.placement.ledger_steps import (
    bound_pod,
    forget_the_job,
    forget_the_start,
    job_id_of,
    kinds,
    pod_that_finds_no_room,
    poll,
    refused_by_slurm,
    settle,
    state_of,
)
from tests.placement.ledger_world import NODES, VIEW, World
from wellknown.job_key import PlaceholderKey


def test_a_bound_pod_outlives_a_slurmctld_that_forgot_to_have_started_its_job() -> None:
    world = World()
    uid = bound_pod(world)
    forget_the_start(world, uid)
    poll(world)
    world.schedule()
    world.pass_time(1.1)
    poll(world)
    assert state_of(world, uid) is State.BOUND
    assert job_id_of(world, uid)
    world.pass_time(100.0)
    assert poll(world) == []


def test_a_bound_pod_whose_job_is_started_again_elsewhere_is_evicted() -> None:
    world = World()
    uid = bound_pod(world)
    node = world.pods[uid].life.node
    job_id = forget_the_start(world, uid)
    poll(world)
    elsewhere = next(name for name in VIEW.nodes if name != node)
    world.jobs[job_id] = replace(world.jobs[job_id], state=JobState("RUNNING"), nodes=(elsewhere,))
    world.pass_time(1.1)
    poll(world)
    assert uid not in world.pods
    assert not world.live_jobs(uid)


@pytest.mark.parametrize("requeued", [True, False])
def test_a_bound_pod_whose_job_was_requeued_or_is_not_started_again_is_evicted(requeued: bool) -> None:
    world = World()
    uid = bound_pod(world)
    forget_the_start(world, uid, restart_count=int(requeued))
    poll(world)
    assert (uid not in world.pods) is requeued
    for _ in range(2):
        world.pass_time(world.rules.doubt + 1)
        poll(world)
    assert uid not in world.pods
    assert not world.live_jobs(uid)


def test_a_node_that_kube_scheduler_never_looked_at_is_not_blamed() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.pass_time(world.rules.unbound_deadline + 1)
    settle(world)
    poll(world)
    world.look(uid)
    submitted = next(e for e in settle(world) if isinstance(e, Submit))
    assert (submitted.uid, submitted.job.excluded_nodes) == (uid, ())


def test_the_job_of_a_bound_pod_that_slurm_forgot_is_asked_for_again_on_the_pods_node() -> None:
    """Invariant I5: absence ends no Pod; invariant I2: nor does one run on without a job."""
    world = World()
    bound_pod(world)
    uid = bound_pod(world)
    key, node = world.live_jobs(uid)[0].admin_comment, world.pods[uid].life.node
    job_id = forget_the_job(world, uid)
    for _ in range(world.rules.confirmations - 1):
        assert poll(world) == []
    (again,) = poll(world)
    assert isinstance(again, Submit)
    assert again.job.priority == max(1 << 31, again.job.priority or 0)  # before all that wait
    world.schedule()
    world.pass_time(1.1)
    poll(world)
    (job,) = world.live_jobs(uid)
    assert (job.id, job.admin_comment, job.nodes) == (job_id, key, (node,))
    assert state_of(world, uid) is State.BOUND
    world.pass_time(100.0)
    assert poll(world) == []


def test_a_bound_pod_that_only_an_earlier_leader_knew_as_allowed_gets_its_job_once_it_is_again() -> None:
    world = World()
    uid = bound_pod(world)
    node = world.pods[uid].life.node
    forget_the_job(world, uid)
    world.edit(uid, forbidden=True)
    world.restart()
    for _ in range(world.rules.confirmations):
        assert Submit not in kinds(poll(world))
    world.edit(uid)
    assert Submit in kinds(settle(world))
    (job,) = world.live_jobs(uid)
    assert job.required_nodes == (node,)


def test_the_observer_hears_once_of_a_bound_pods_job_that_slurm_has_lost() -> None:
    world, lost = World(), list[State]()

    def observe(before: Placeholder | None, after: Placeholder) -> None:
        if before is not None and before.state is after.state:
            assert (before.has_lost_job, after.has_lost_job) == (False, True)
            lost.append(after.state)

    world.acting.ledger = Ledger(world.rules, observe)
    world.tell(ClusterObserved(VIEW))
    forget_the_job(world, bound_pod(world))
    for _ in range(world.rules.confirmations + 2):
        poll(world)
    assert lost == [State.BOUND]


def test_a_pod_that_was_being_bound_when_slurm_forgot_its_job_gets_it_back() -> None:
    """Invariant I5, in the moment between the leader's look and the Binding's arrival."""
    world = World()
    uid = world.create_pod()
    settle(world)
    world.begin_binding(uid)
    forget_the_job(world, uid)
    for _ in range(world.rules.confirmations):
        world.ask()
        world.answer()
    assert state_of(world, uid) is State.REPLACING
    world.finish_binding(uid)
    assert Submit in kinds(settle(world))
    assert state_of(world, uid) is State.BOUND
    (job,) = world.live_jobs(uid)
    assert job.required_nodes == (world.pods[uid].life.node,)


@pytest.mark.parametrize("what", ["nothing", "the Pod is allowed", "the leader restarts"])
def test_a_refused_pod_outlives_the_job_that_a_deposed_leader_asked_for(what: str) -> None:
    world = World()
    uid = world.create_pod()
    while world.news:
        world.hear()
    (late,) = world.effects  # the request of a leader that is deposed
    assert isinstance(late, Submit)
    world.effects.clear()
    world.edit(uid, forbidden=True)
    world.restart()
    settle(world)
    assert state_of(world, uid) is State.INVALID
    world.do(late)
    world.sweep()
    settle(world)
    if what == "the Pod is allowed":
        world.edit(uid)
    elif what == "the leader restarts":
        world.restart()
    for _ in range(3):
        poll(world)
    assert uid in world.pods
    live = [job.id for job in world.live_jobs(uid)]
    assert len(live) == (what == "the Pod is allowed")
    assert late.job_id not in live


def test_what_a_pod_asks_for_anyway_is_no_orphan() -> None:
    """It was allowed between the audit's last look and the order to end its job."""
    world = World()
    uid = world.create_pod()
    settle(world)
    (job,) = world.live_jobs(uid)
    key = PlaceholderKey.parse(job.admin_comment)
    assert key is not None
    world.tell(OrphanFound(key, job.id))
    assert settle(world) == []
    assert world.live_jobs(uid) == [job]


def test_a_pod_whose_allocation_was_being_taken_back_when_slurm_forgot_its_job_gets_it_back() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.begin_binding(uid)
    world.pass_time(world.rules.unbound_deadline + 1)
    assert state_of(world, uid) is State.REPLACING
    forget_the_job(world, uid)
    world.finish_binding(uid)
    while world.effects:  # what was to be written finds another version of the Pod
        effect = world.effects.pop(0)
        world.finish(effect, world.do(effect))
    for _ in range(world.rules.confirmations):
        world.ask()
        world.answer()
    world.pass_time(1.0)
    settle(world)
    world.pass_time(1.0)
    settle(world)
    assert state_of(world, uid) is State.BOUND
    (again,) = world.live_jobs(uid)
    assert again.required_nodes == (world.pods[uid].life.node,)


def test_a_bound_pod_whose_forgotten_job_finds_its_node_taken_runs_on_until_it_is_free() -> None:
    world = World()
    uid = bound_pod(world)
    taken = replace(world.live_jobs(uid)[0], id=7, admin_comment="")
    forget_the_job(world, uid)
    world.jobs[7] = taken
    for _ in range(world.rules.confirmations):
        poll(world)
    for _ in range(4):
        world.schedule()
        world.pass_time(world.rules.doubt + 1)
        poll(world)
    (job,) = world.live_jobs(uid)
    assert job.state.pending
    assert [p.cause and p.cause.reason for p in world.ledger.placeholders] == ["SlurmJobLost"]
    world.restart()
    poll(world)
    assert [p.cause and p.cause.reason for p in world.ledger.placeholders] == ["SlurmJobLost"]
    world.end_job(7, "COMPLETED")
    world.schedule()
    world.pass_time(world.rules.reason_interval)
    poll(world)
    assert world.live_jobs(uid)[0].state.running
    assert [p.cause for p in world.ledger.placeholders] == [None]


def test_the_author_of_a_pod_whose_lost_job_slurm_does_not_take_again_is_told_once() -> None:
    """By an Event: the Pod runs."""
    world = World()
    uid = bound_pod(world)
    forget_the_job(world, uid)
    for _ in range(world.rules.confirmations):
        world.ask()
        world.answer()
    (told,) = refused_by_slurm(world, Submit, 20)
    assert "Invalid account" in sentence(told.cause)
    assert told.event_alone
    assert state_of(world, uid) is State.BOUND
    settle(world)
    assert world.live_jobs(uid)


def test_the_author_of_a_pod_whose_job_slurm_lets_nobody_change_is_told_once() -> None:
    world = World()
    for _ in NODES:
        bound_pod(world)
    uid = world.create_pod()
    settle(world)
    cordoned = dict(VIEW.nodes) | {"n1": replace(VIEW.nodes["n1"], unschedulable=True)}
    world.tell(ClusterObserved(replace(VIEW, nodes=cordoned)))
    world.pass_time(1.0)
    assert refused_by_slurm(world, ExcludeNodes, 3) == []  # it may have crossed with something
    (told,) = refused_by_slurm(world, ExcludeNodes, 20)
    assert "Invalid account" in sentence(told.cause)
    assert (told.event_alone, told.job_id) == (False, job_id_of(world, uid))


def test_a_forgotten_job_that_comes_back_is_not_asked_for_again() -> None:
    world = World()
    uid = bound_pod(world)
    job = world.live_jobs(uid)[0]
    forget_the_job(world, uid)
    for _ in range(world.rules.confirmations):
        world.ask()
        world.answer()
    world.jobs[job.id] = job  # between the poll and the submission
    assert kinds(settle(world)) == [Submit]
    world.pass_time(1.1)
    poll(world)
    assert world.live_jobs(uid) == [job]
    world.pass_time(100.0)
    assert poll(world) == []


def test_the_job_of_a_pod_whose_node_is_gone_is_not_asked_for() -> None:
    world = World()
    uid = bound_pod(world)
    forget_the_job(world, uid)
    world.tell(ClusterObserved(replace(VIEW, nodes={})))
    for _ in range(10):
        assert poll(world) == []
        world.pass_time(5.0)
    assert state_of(world, uid) is State.BOUND


def test_a_queued_job_that_slurm_forgot_is_submitted_again_under_its_id() -> None:
    world = World()
    uid = pod_that_finds_no_room(world)
    forgotten = world.jobs.pop(job_id_of(world, uid))
    for _ in range(world.rules.confirmations):
        assert not world.live_jobs(uid)
        poll(world)
    assert job_id_of(world, uid) == forgotten.id


def test_a_cancelled_job_that_comes_back_is_cancelled_again() -> None:
    world = World()
    uid = bound_pod(world)
    world.save()
    world.remove_pod(uid)
    settle(world)
    poll(world)
    assert not world.live_jobs(uid)
    world.kill_slurmctld()
    assert world.live_jobs(uid)
    world.pass_time(1.0)
    poll(world)
    assert not world.live_jobs(uid)


def test_lost_job_that_comes_back_after_its_pod_was_placed_again_is_cancelled() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    (lost,) = world.live_jobs(uid)
    forget_the_job(world, uid)
    for _ in range(world.rules.confirmations):
        poll(world)
    settle(world)
    (placed,) = world.live_jobs(uid)
    assert placed.id != lost.id
    world.jobs[lost.id] = lost
    world.revived.add(lost.id)
    world.pass_time(1.0)
    for _ in range(2):
        poll(world)
    assert world.live_jobs(uid) == [world.jobs[placed.id]]


def test_a_tombstone_is_dropped_after_its_time() -> None:
    world = World()
    uid = bound_pod(world)
    world.remove_pod(uid)
    settle(world)
    poll(world)
    assert state_of(world, uid) is State.DONE
    world.pass_time(world.rules.tombstone + 1)
    assert list(world.ledger.placeholders) == []
