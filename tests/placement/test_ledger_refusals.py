"""What the ledger does where Slurm or kube-scheduler refuses a Pod or its Node."""

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
from tests.placement.ledger_steps import (
    bound_pod,
    job_id_of,
    kinds,
    poll,
    settle,
    settle_refused,
    state_of,
)
from tests.placement.ledger_world import REFUSAL, REQUEST, VIEW, World


def test_a_pod_that_slurm_can_never_run_is_refused_and_told() -> None:
    world = World()
    uid = world.create_pod()
    world.hear()
    effect = world.effects.pop(0)
    world.finish(effect, Failure(Remedy.CHANGE, "Invalid partition name"))
    (told,) = settle(world)
    assert isinstance(told, ReportWaiting)
    assert "Invalid partition name" in sentence(told.cause)
    assert state_of(world, uid) is State.INVALID


def test_a_refused_pod_that_is_changed_is_tried_again() -> None:
    world = World()
    uid = world.create_pod()
    world.hear()
    world.finish(world.effects.pop(0), Failure(Remedy.CHANGE, "Invalid partition name"))
    settle(world)
    world.write(world.pods[uid]._replace(request=Request(REQUEST.job, REQUEST.constraints, ("bad",))))
    settle(world)
    assert state_of(world, uid) is State.INVALID
    world.write(world.pods[uid]._replace(request=REQUEST))
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED


def test_a_pod_whose_node_kube_scheduler_refuses_tries_another_at_once_if_that_is_offered() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    first = world.pods[uid].scheduling.allocation
    assert first is not None
    world.refuse(uid, offers=True)
    assert kinds(settle(world))[:3] == [CheckDepartures, WriteAttempt, CancelJob]
    submitted = next(e for e in poll(world) if isinstance(e, Submit))
    assert submitted.job.excluded_nodes == (first.node,)
    assert world.pods[uid].scheduling.attempt == 2


def test_offer_that_comes_after_the_rejection_ends_the_attempt_at_once() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.refuse(uid, offers=False)
    assert kinds(settle(world)) == []
    world.refuse(uid, offers=True)
    assert kinds(settle(world))[:3] == [CheckDepartures, WriteAttempt, CancelJob]


def test_only_the_nodes_that_kube_scheduler_offered_are_asked_for_after_a_refusal() -> None:
    names = ("n1", "n2", "n3", "n4")
    world = World()
    nodes = {name: Node(name, name, {}) for name in names}
    partitions = {"main": replace(VIEW.partitions["main"], nodes=names)}
    world.tell(ClusterObserved(replace(VIEW, nodes=nodes, partitions=partitions)))
    uid = world.create_pod()
    settle(world)
    granted = world.pods[uid].scheduling.allocation
    assert granted is not None
    world.write(changed(world.pods[uid], feasible_nodes=FeasibleNodes(granted.job_id, ("n3",))))
    settle(world)
    submitted = next(e for e in poll(world) if isinstance(e, Submit))
    assert submitted.job.excluded_nodes == ("n[1-2,4]",)


def test_an_offer_without_a_node_of_the_partition_is_none() -> None:
    world = World()
    elsewhere = {name: Node(name, name, {}) for name in ("n1", "n2", "other")}
    world.tell(ClusterObserved(replace(VIEW, nodes=elsewhere)))
    uid = world.create_pod()
    settle(world)
    first = world.pods[uid].scheduling.allocation
    assert first is not None
    world.write(changed(world.pods[uid], feasible_nodes=FeasibleNodes(first.job_id, ("other",))))
    settle(world)
    assert not any(isinstance(effect, Submit) for effect in poll(world))
    world.pass_time(world.rules.unbindable[0])
    assert not any(isinstance(effect, Submit) for effect in poll(world))
    world.write(changed(world.pods[uid], feasible_nodes=FeasibleNodes(0, ("n2",))))
    (submitted,) = (e for e in settle(world) if isinstance(e, Submit))
    assert submitted.job.excluded_nodes == ("n1",)


def test_an_offer_instead_of_an_earlier_jobs_node_says_nothing_of_this_ones() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.write(changed(world.pods[uid], feasible_nodes=FeasibleNodes(4711, ("n2",))))
    assert settle(world) == []


def test_a_node_that_pods_are_leaving_is_waited_for() -> None:
    world = World(vacated_in={"n1": 20.0})
    uid = world.create_pod()
    settle(world)
    assert kinds(settle_refused(world, uid)) == [CheckDepartures]
    world.pass_time(19.0)
    assert settle(world) == []
    world.bind(uid)
    settle(world)
    assert state_of(world, uid) is State.BOUND


def test_a_node_that_another_pod_leaves_within_a_day_is_given_back() -> None:
    world = World(vacated_in={"n1": 86_405.0})
    uid = world.create_pod()
    settle(world)
    (job,) = world.live_jobs(uid)
    assert job.nodes == ("n1",)
    settle_refused(world, uid)
    assert world.jobs[job.id].state.ended
    assert not world.ledger.holding("n1")


def test_a_node_that_is_refused_when_it_is_clear_too_is_given_back() -> None:
    world = World(vacated_in={"n1": 40.0})
    uid = world.create_pod()
    settle(world)
    settle_refused(world, uid)
    world.vacated_in.clear()
    world.pass_time(41.0)
    assert kinds(settle(world)) == [CheckDepartures, WriteAllocation]
    assert kinds(settle_refused(world, uid))[:2] == [CheckDepartures, WriteAttempt]


def test_a_refusal_for_want_of_room_may_be_of_a_pod_that_has_just_left_and_counts_once() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    allocated = world.pods[uid].scheduling.allocation
    assert allocated is not None

    def lacks(words: str) -> list[type[Effect]]:
        world.say(uid, f"0/2 nodes are available: 1 Insufficient nvidia.com/gpu.{words}")
        done = settle(world)
        world.pass_time(0.3)
        return kinds(done + settle(world))

    assert lacks("") == [CheckDepartures]
    world.pass_time(world.rules.settle)
    assert kinds(settle(world)) == [CheckDepartures, WriteAllocation]
    assert world.pods[uid].scheduling.allocation == allocated
    world.pass_time(world.rules.hears_within)
    assert lacks(" Still.")[:2] == [CheckDepartures, WriteAttempt]


def test_a_refusal_after_an_unknown_outcome_has_the_job_looked_for_first() -> None:
    for remedy in (Remedy.CHANGE, Remedy.LATER, Remedy.OPERATOR, Remedy.NO_ROOM):
        world = World()
        uid = world.create_pod()
        world.hear()
        (submit,) = world.effects
        world.acting.effects = []
        world.do(submit)  # it arrived, but the reply was lost
        world.finish(submit, Failure(Remedy.AGAIN, "lost"))
        world.pass_time(1.0)
        (again,) = (effect for effect in world.effects if isinstance(effect, Submit))
        world.acting.effects = []
        world.finish(again, Failure(remedy, "refused"))
        settle(world)
        assert state_of(world, uid) is State.ALLOCATED, remedy


def test_a_pod_bound_by_another_replica_to_the_job_just_started_keeps_it() -> None:
    """This replica has seen the job start, and has not yet read where."""
    world = World()
    uid = world.create_pod()
    settle(world)
    world.bind(uid)
    bound = world.pods[uid]
    started = placeholder_of(
        changed(bound, node=None), State.ALLOCATED, job=TrackedJob(id=job_id_of(world, uid))
    )
    after = after_pod(started, bound, Context(world.now, world.rules, VIEW))
    assert (after.state, after.members[0].slot) == (State.BOUND, bound.scheduling.allocation)
    assert after.job.unverified  # and so Slurm is asked


def test_an_offer_that_names_another_job_is_not_gone_by() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.write(
        changed(world.pods[uid], node_rejection=REFUSAL, feasible_nodes=FeasibleNodes(4711, ("n9",)))
    )
    settle(world)
    world.pass_time(0.3)
    settle(world)
    poll(world)
    world.write(changed(world.pods[uid], feasible_nodes=FeasibleNodes(0)))
    settle(world)
    world.pass_time(world.rules.unbindable[0])
    submitted = next(e for e in poll(world) if isinstance(e, Submit))
    assert submitted.job.excluded_nodes == ("n1",)


def test_a_pods_news_do_not_shorten_the_pause_before_another_attempt() -> None:
    world = World()
    uid = world.create_pod()
    world.write(changed(world.pods[uid], attempt=8))
    world.acting.news = world.news[-1:]
    assert settle(world) == []
    world.write(changed(world.pods[uid], looked_at=True))
    assert settle(world) == []
    world.pass_time(31.0)
    assert Submit in kinds(settle(world))


def test_a_node_is_avoided_for_a_while_and_not_for_ever() -> None:
    world = World()
    world.tell(ClusterObserved(replace(VIEW, nodes={"n1": VIEW.nodes["n1"]})))
    uid = world.create_pod()
    settle(world)
    settle_refused(world, uid)
    poll(world)
    world.write(changed(world.pods[uid], feasible_nodes=FeasibleNodes(0)))
    settle(world)
    world.pass_time(world.rules.unbindable[0])
    settle(world)
    assert state_of(world, uid) is State.SUBMITTING
    assert not world.live_jobs(uid)
    world.pass_time(world.rules.avoid + 1)
    world.pass_time(60.0)
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED


def test_a_pod_that_is_bound_does_not_wait_for_others_to_leave_nodes() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.refuse(uid, offers=True)
    settle(world)
    poll(world)
    poll(world)
    assert world.ledger._avoiding == {uid}
    world.bind(uid)
    settle(world)
    assert (state_of(world, uid), world.ledger._avoiding) == (State.BOUND, set())


def test_a_node_that_was_avoided_long_ago_is_not_waited_for() -> None:
    world = World()
    other, uid = bound_pod(world), world.create_pod()
    settle(world)
    settle_refused(world, uid)
    poll(world)
    world.pass_time(world.rules.avoid + 1)
    settle(world)
    world.remove_pod(other)
    settle(world)
    assert (state_of(world, uid), world.ledger._avoiding) == (State.SEEN, set())


def test_a_node_that_another_pod_has_left_is_not_avoided_any_more() -> None:
    world = World()
    world.tell(ClusterObserved(replace(VIEW, nodes={"n1": VIEW.nodes["n1"]})))
    blocking = bound_pod(world)
    world.pods[blocking] = changed(world.pods[blocking], node="n1")
    (job,) = world.live_jobs(blocking)
    world.jobs[job.id] = replace(job, nodes=("n2",))  # room for both in Slurm, not in Kubernetes
    uid = world.create_pod()
    settle(world)
    settle_refused(world, uid)
    poll(world)
    assert state_of(world, uid) is State.SEEN
    world.remove_pod(blocking)
    settle(world)
    assert state_of(world, uid) is State.SEEN
    world.look(uid)
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED
