"""Tests of the ledger if Slurm refuses a Pod, or if kube-scheduler rejects the Node."""

from __future__ import annotations

from dataclasses import replace

from extender.explain.sentences import sentence
from extender.jobs.tracked_job import TrackedJob
from extender.placement.transitions.table import after_pod
from extender.pod_request.constraints.node_constraints import Node
from extender.pod_request.feasible_nodes import FeasibleNodes
from extender.pod_request.job_request import Request
from extender.record.config import Context
from extender.record.events import (
    CancelJob,
    CheckDepartures,
    ClusterObserved,
    Effect,
    Failure,
    Remedy,
    ReportWaiting,
    Submit,
    WriteAllocation,
    WriteAttempt,
)
from extender.record.states import State
from tests.builders import changed, placeholder_of
from tests.placement.ledger_world import REFUSAL, REQUEST, VIEW, World, kinds, of_kind, only


def test_refused_pod_reports_the_cause_and_is_retried_after_a_change(world: World) -> None:
    uid, submit = world.pod_and_submission()
    world.finish(submit, Failure(Remedy.CHANGE, "Invalid partition name"))
    told = only(world.settle(), ReportWaiting)
    assert "Invalid partition name" in sentence(told.cause)
    assert world.state_of(uid) is State.INVALID
    world.write(world.pods[uid]._replace(request=Request(REQUEST.job, REQUEST.constraints, ("bad",))))
    world.settle()
    assert world.state_of(uid) is State.INVALID
    world.write_and_settle(world.pods[uid]._replace(request=REQUEST))
    assert world.state_of(uid) is State.ALLOCATED


def test_pod_with_a_refused_node_tries_an_offered_node_at_once(world: World) -> None:
    uid = world.settled_pod()
    first = world.allocation_of(uid)
    world.refuse(uid, offers=True)
    assert kinds(world.settle())[:3] == [CheckDepartures, WriteAttempt, CancelJob]
    (submitted,) = of_kind(world.poll(), Submit)
    assert submitted.job.excluded_nodes == (first.node,)
    assert world.pods[uid].scheduling.attempt == 2


def test_offer_that_comes_after_the_rejection_ends_the_attempt_at_once(world: World) -> None:
    uid = world.settled_pod()
    world.refuse(uid, offers=False)
    assert kinds(world.settle()) == []
    world.refuse(uid, offers=True)
    assert kinds(world.settle())[:3] == [CheckDepartures, WriteAttempt, CancelJob]


def test_next_job_excludes_nodes_that_kube_scheduler_did_not_offer() -> None:
    names = ("n1", "n2", "n3", "n4")
    world = World()
    nodes = {name: Node(name, name, {}) for name in names}
    partitions = {"main": replace(VIEW.partitions["main"], nodes=names)}
    world.tell(ClusterObserved(replace(VIEW, nodes=nodes, partitions=partitions)))
    uid = world.settled_pod()
    granted = world.allocation_of(uid)
    world.change_and_settle(uid, feasible_nodes=FeasibleNodes(granted.job_id, ("n3",)))
    submitted, *_ = of_kind(world.poll(), Submit)
    assert submitted.job.excluded_nodes == ("n[1-2,4]",)


def test_offer_without_a_node_of_the_partition_is_ignored(world: World) -> None:
    elsewhere = {name: Node(name, name, {}) for name in ("n1", "n2", "other")}
    world.tell(ClusterObserved(replace(VIEW, nodes=elsewhere)))
    uid = world.settled_pod()
    first = world.allocation_of(uid)
    world.change_and_settle(uid, feasible_nodes=FeasibleNodes(first.job_id, ("other",)))
    assert not any(isinstance(effect, Submit) for effect in world.poll())
    world.pass_time(world.rules.unbindable.shortest)
    assert not any(isinstance(effect, Submit) for effect in world.poll())
    world.change_pod(uid, feasible_nodes=FeasibleNodes(0, ("n2",)))
    (submitted,) = (e for e in world.settle() if isinstance(e, Submit))
    assert submitted.job.excluded_nodes == ("n1",)


def test_offer_for_an_earlier_job_is_ignored(world: World) -> None:
    uid = world.settled_pod()
    assert world.change_and_settle(uid, feasible_nodes=FeasibleNodes(4711, ("n2",))) == []


def test_pod_waits_for_a_node_that_other_pods_are_leaving() -> None:
    world = World(vacated_in={"n1": 20.0})
    uid = world.settled_pod()
    assert kinds(world.settle_refused(uid)) == [CheckDepartures]
    assert world.wait(19.0) == []
    world.bind_and_settle(uid)
    assert world.state_of(uid) is State.BOUND


def test_node_that_another_pod_leaves_only_after_a_day_is_given_back() -> None:
    world = World(vacated_in={"n1": 86_405.0})
    uid = world.settled_pod()
    (job,) = world.live_jobs(uid)
    assert job.nodes == ("n1",)
    world.settle_refused(uid)
    assert world.jobs[job.id].state.ended
    assert not world.ledger.holding("n1")


def test_node_refused_again_after_other_pods_left_is_given_back() -> None:
    world = World(vacated_in={"n1": 40.0})
    uid = world.settled_pod()
    world.settle_refused(uid)
    world.vacated_in.clear()
    assert kinds(world.wait(41.0)) == [CheckDepartures, WriteAllocation]
    assert kinds(world.settle_refused(uid))[:2] == [CheckDepartures, WriteAttempt]


def test_first_refusal_for_lack_of_room_keeps_the_allocation(world: World) -> None:
    """After an outage of kube-apiserver, kube-scheduler may see the deletion of another Pod late."""
    uid = world.settled_pod()
    world.pass_time(20.0)
    allocated = world.allocation_of(uid)

    def lacks(words: str) -> list[type[Effect]]:
        world.say(uid, f"0/2 nodes are available: 1 Insufficient nvidia.com/gpu.{words}")
        done = world.settle()
        return kinds(done + world.wait(0.3))

    assert lacks("") == [CheckDepartures]
    assert kinds(world.wait(world.rules.report_after)) == [CheckDepartures, WriteAllocation]
    assert world.pods[uid].scheduling.allocation == allocated
    assert lacks(" Still.")[:2] == [CheckDepartures, WriteAttempt]


def test_job_is_looked_up_if_a_refusal_follows_an_unknown_outcome() -> None:
    for remedy in (Remedy.CHANGE, Remedy.LATER, Remedy.OPERATOR, Remedy.NO_ROOM):
        world = World()
        uid, submit = world.pod_and_submission()
        world.do(submit)  # Slurm accepts the job, but the reply is lost
        world.finish(submit, Failure(Remedy.AGAIN, "lost"))
        world.pass_time(1.0)
        world.finish(world.take(Submit), Failure(remedy, "refused"))
        world.settle()
        assert world.state_of(uid) is State.ALLOCATED, remedy


def test_a_pod_bound_by_another_replica_to_the_job_just_started_keeps_it(world: World) -> None:
    """This replica knows that the job runs, but has not read the node yet."""
    uid = world.settled_pod()
    world.bind(uid)
    bound = world.pods[uid]
    started = placeholder_of(
        changed(bound, node=None), State.ALLOCATED, job=TrackedJob(id=world.job_id_of(uid))
    )
    after = after_pod(started, bound, Context(world.now, world.rules, VIEW))
    assert (after.state, after.members[0].slot) == (State.BOUND, bound.scheduling.allocation)
    assert after.job.unverified  # so the ledger reads the job


def test_refusal_with_an_offer_for_another_job_excludes_the_node(world: World) -> None:
    uid = world.settled_pod()
    world.change_and_settle(uid, node_rejection=REFUSAL, feasible_nodes=FeasibleNodes(4711, ("n9",)))
    world.wait(0.3)
    world.poll()
    world.change_and_settle(uid, feasible_nodes=FeasibleNodes(0))
    world.pass_time(world.rules.unbindable.shortest)
    (submitted,) = of_kind(world.poll(), Submit)
    assert submitted.job.excluded_nodes == ("n1",)


def test_updates_of_a_pod_do_not_shorten_the_pause_before_an_attempt(world: World) -> None:
    uid = world.create_pod()
    world.change_pod(uid, attempt=8)
    world.acting.news = world.news[-1:]
    assert world.settle() == []
    assert world.change_and_settle(uid, looked_at=True) == []
    assert Submit in kinds(world.wait(31.0))


def test_a_node_is_avoided_for_a_while_and_not_for_ever(world: World) -> None:
    world.tell(ClusterObserved(replace(VIEW, nodes={"n1": VIEW.nodes["n1"]})))
    uid = world.settled_pod()
    world.settle_refused(uid)
    world.poll()
    world.change_and_settle(uid, feasible_nodes=FeasibleNodes(0))
    world.wait(world.rules.unbindable.shortest)
    assert world.state_of(uid) is State.SUBMITTING
    assert not world.live_jobs(uid)
    world.pass_time(world.rules.node_exclusion + 1)
    world.wait(60.0)
    assert world.state_of(uid) is State.ALLOCATED


def test_bound_pod_no_longer_waits_for_pods_to_leave_nodes(world: World) -> None:
    uid = world.settled_pod()
    world.refuse(uid, offers=True)
    world.settle()
    world.poll()
    world.poll()
    assert world.ledger._avoiding == {uid}
    world.bind_and_settle(uid)
    assert (world.state_of(uid), world.ledger._avoiding) == (State.BOUND, set())


def test_pod_does_not_wait_for_a_node_after_its_exclusion_ended(world: World) -> None:
    other, uid = world.bound_pod(), world.create_pod()
    world.settle()
    world.settle_refused(uid)
    world.poll()
    world.wait(world.rules.node_exclusion + 1)
    world.remove_and_settle(other)
    assert (world.state_of(uid), world.ledger._avoiding) == (State.SEEN, set())


def test_a_node_that_another_pod_has_left_is_not_avoided_any_more(world: World) -> None:
    world.tell(ClusterObserved(replace(VIEW, nodes={"n1": VIEW.nodes["n1"]})))
    blocking = world.bound_pod()
    world.pods[blocking] = changed(world.pods[blocking], node="n1")
    (job,) = world.live_jobs(blocking)
    world.jobs[job.id] = replace(job, nodes=("n2",))  # Slurm has room for both jobs, Kubernetes has not
    uid = world.settled_pod()
    world.settle_refused(uid)
    world.poll()
    assert world.state_of(uid) is State.SEEN
    world.remove_and_settle(blocking)
    assert world.state_of(uid) is State.SEEN
    world.look(uid)
    world.settle()
    assert world.state_of(uid) is State.ALLOCATED
