"""Tests of containers after the forced deletion of their Pod. Until the containers end, no other Pod
gets the resources of the containers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.pod_request.constraints.node_constraints import Taint
from extender.record.events import CancelJob, ClusterObserved, HoldJob, WriteAllocation
from extender.record.states import State
from slurm_client.model import MOST_BYTES
from tests.placement.ledger_world import REQUEST, World, kinds

WORDS = "Pod gone: its containers may run for another 35 s"
LINGERS_S = 35.0  # the default grace, and the extra time of the kubelet


def job_of_a_pod_deleted_by_force(world: World, comment: str | None = None) -> int:
    """Deletes a bound Pod by force, and returns the job id. The Pod's author may have set a comment."""
    job_id = world.job_id_of(uid := commented(world, comment))
    world.force_delete(uid)
    world.settle()
    return job_id


def commented(world: World, comment: str | None) -> str:
    return world.bound_pod(request=replace(REQUEST, job=replace(REQUEST.job, comment=comment)))


def ended_at_last(world: World, job_id: int) -> None:
    assert world.jobs[job_id].state.base == "CANCELLED"
    assert not list(world.ledger.holding("n1"))


def is_held_until_they_have_ended(world: World, job_id: int) -> None:
    world.wait(LINGERS_S - 0.1)
    assert world.jobs[job_id].state.running
    world.wait(0.2)
    ended_at_last(world, job_id)
    assert "containers" not in world.jobs[job_id].comment


def test_job_of_a_force_deleted_pod_is_held_until_its_containers_end(world: World) -> None:
    job_id = job_of_a_pod_deleted_by_force(world)
    assert world.jobs[job_id].comment == WORDS
    is_held_until_they_have_ended(world, job_id)


def test_the_job_of_a_pod_whose_containers_have_ended_is_cancelled_at_once(world: World) -> None:
    uid, job_id = world.bound_pod_and_job()
    assert kinds(world.remove_and_settle(uid)) == [CancelJob]
    ended_at_last(world, job_id)


def test_job_of_an_unbound_force_deleted_pod_is_not_held(world: World) -> None:
    uid = world.settled_pod()
    job_id = world.job_id_of(uid)
    world.force_delete(uid)
    world.settle()
    ended_at_last(world, job_id)


def test_a_pod_that_finished_before_it_was_deleted_has_no_containers(world: World) -> None:
    uid = world.bound_pod()
    world.change_and_settle(uid, finished=True)
    world.force_delete(uid)
    world.settle()
    assert not world.live_jobs(uid)
    assert not list(world.ledger.holding("n1"))


@pytest.mark.parametrize("when", ["before", "after"])
def test_node_is_held_while_containers_of_an_ended_job_run(world: World, when: str) -> None:
    """Slurm gives the node to another job while containers of the ended job run. The Prolog of the other
    job waits, and the Pod of the other job gets no allocation yet."""
    uid, job_id = world.bound_pod_and_job()
    if when == "before":
        world.disturb(job_id, "PREEMPTED")
        world.poll_alone()
        world.effects.clear()  # the Pod is deleted before the ledger evicts the Pod
    world.force_delete(uid)
    world.hear_all()
    world.disturb(job_id, "PREEMPTED")
    world.poll()
    (held,) = world.ledger.holding("n1")
    assert (held.uid, held.state) == (uid, State.RELEASING)
    other = world.create_pod()
    assert WriteAllocation not in kinds(world.settle())
    assert world.state_of(other) is State.ALLOCATED
    assert WriteAllocation in kinds(world.wait(LINGERS_S))
    assert not world.ledger.holding("n1") or world.ledger.holding("n1")[0].uid == other


def taint(world: World, *taints: Taint) -> None:
    nodes = {**world.view.nodes, "n1": replace(world.view.nodes["n1"], taints=taints)}
    world.view = replace(world.view, nodes=nodes)
    world.tell(ClusterObserved(world.view))


@pytest.mark.parametrize("away_for_s", [10.0, 100.0])
def test_time_of_containers_begins_after_the_node_is_reachable_again(
    world: World, away_for_s: float
) -> None:
    """A kubelet without a connection to kube-apiserver does not know of the deletion."""
    uid, job_id = world.bound_pod_and_job()
    taint(world, Taint("node.kubernetes.io/unreachable", "", "NoExecute"))
    world.force_delete(uid)
    world.settle()
    world.wait(away_for_s)
    assert world.jobs[job_id].state.running
    taint(world)
    is_held_until_they_have_ended(world, job_id)


@pytest.mark.parametrize("retried_s", [0.2, 25.0])
def test_an_allocated_pod_is_bound_after_the_containers_have_ended(retried_s: float) -> None:
    """The ledger counts the time limit for the Binding from the end of the containers, however often
    kube-scheduler has tried before."""
    world = World()
    uid = world.bound_pod()
    world.lose_job(uid, "PREEMPTED")
    world.effects.clear()  # the Pod is deleted before the ledger evicts the Pod
    other = world.settled_pod()
    allocation = world.allocation_of(other)
    assert allocation.node == "n1"
    world.pass_time(20.0)
    world.force_delete(uid)
    world.settle()
    for _ in range(34):
        world.wait(1.0)
        world.bind(other)
        assert not world.pods[other].life.node
    world.wait(1.0 + retried_s)
    world.bind_and_settle(other)
    assert (world.pods[other].life.node, world.started[other]) == ("n1", 1)
    assert world.state_of(other) is State.BOUND


def test_next_leader_holds_a_job_as_its_comment_states(world: World) -> None:
    job_id = job_of_a_pod_deleted_by_force(world)
    world.pass_time(10.0)
    world.restart_and_settle()
    world.wait(LINGERS_S - 0.1)
    assert world.jobs[job_id].state.running
    (held,) = world.ledger.holding("n1")
    assert held.job.id == job_id
    world.wait(0.2)
    ended_at_last(world, job_id)


def test_the_next_leader_holds_the_node_of_a_held_job_that_ends_unread(world: World) -> None:
    job_id = job_of_a_pod_deleted_by_force(world)
    world.restart()
    world.disturb(job_id, "CANCELLED")
    for _ in range(2):  # before and after the next read
        (held,) = world.ledger.holding("n1")
        assert held.job.id == job_id
        world.poll()
    world.wait(LINGERS_S + 0.1)
    assert not world.ledger.holding("n1")


FOR_LONG = WORDS.replace("35", "3600")


@pytest.mark.parametrize("author", ["of its Pod", "of the job's change"])
def test_comment_cannot_hold_a_job_longer_than_containers_may_run(world: World, author: str) -> None:
    """The owner of a job can change the comment, and the author of a Pod chooses the job's first
    comment."""
    uid = commented(world, FOR_LONG if author == "of its Pod" else "mine")
    job_id = world.job_id_of(uid)
    if author != "of its Pod":
        world.jobs[job_id] = replace(world.jobs[job_id], comment=FOR_LONG)
    world.remove_pod(uid)
    world.news.clear()  # no replica led at the time of the deletion
    world.restart_and_settle()
    world.wait(world.rules.leaves_within + 0.1)
    ended_at_last(world, job_id)


def test_full_comment_is_shortened_for_the_message_of_the_extender(world: World) -> None:
    job_id = job_of_a_pod_deleted_by_force(world, "é" * (MOST_BYTES // 2 - 5))
    said = world.jobs[job_id].comment
    assert said.startswith(WORDS)
    assert len(said.encode()) <= MOST_BYTES
    world.restart_and_settle()
    is_held_until_they_have_ended(world, job_id)


def test_unwritten_comment_does_not_keep_the_job(world: World) -> None:
    uid, job_id = world.bound_pod_and_job()
    world.force_delete(uid)
    world.hear_all()
    words = world.take(HoldJob)
    world.pass_time(LINGERS_S)  # the write of the comment takes all this time
    world.finish(words, None)
    world.settle()
    ended_at_last(world, job_id)
