"""Tests of the ledger for a Pod that waits for a Node, and of the reports about the wait."""

from __future__ import annotations

from dataclasses import replace

from extender.pod_request.constraints.node_constraints import Node, NodeConstraints
from extender.record.config import PlacementConfig
from extender.record.events import (
    ClusterObserved,
    ExcludeNodes,
    Failure,
    PodObserved,
    Remedy,
    ReportWaiting,
    Submit,
    WriteAllocation,
)
from extender.record.states import State
from tests.builders import changed
from tests.placement.ledger_world import CORDONED, REQUEST, VIEW, World, calm_down, only


def test_a_pod_that_needs_a_closed_node_waits_for_it(world: World) -> None:
    world.tell(ClusterObserved(CORDONED))
    needs = replace(REQUEST, job=replace(REQUEST.job, required_nodes=("n1",)))
    uid = world.create_pod(request=needs)
    told = only(world.settle(), ReportWaiting)
    assert told.cause.reason == "NoEligibleNode"
    world.tell_and_settle(ClusterObserved(VIEW))
    assert world.state_of(uid) is State.ALLOCATED


def test_a_pod_that_needs_one_of_several_nodes_gets_one_that_is_open(world: World) -> None:
    world.tell(ClusterObserved(CORDONED))
    needs = replace(REQUEST, job=replace(REQUEST.job, required_nodes=("n1", "n2")))
    uid = world.create_pod(request=needs)
    world.settle()
    assert world.state_of(uid) is State.ALLOCATED
    assert world.allocation_of(uid).node == "n2"


def test_pod_marked_as_waiting_before_a_restart_gets_a_nominated_node(world: World) -> None:
    world.create_pod()
    world.acting.news = [PodObserved(changed(pod.pod, told_to_wait=True)) for pod in world.news]  # type: ignore[union-attr]
    (written,) = (e for e in world.settle() if isinstance(e, WriteAllocation))
    assert written.nominate


def test_failed_report_is_repeated_later(world: World) -> None:
    uid, submit = world.pod_and_submission()
    world.finish(submit, Failure(Remedy.CHANGE, "Invalid partition name"))
    (told,) = world.effects
    world.acting.effects = []
    world.finish(told, Failure(Remedy.AGAIN, "kube-apiserver does not answer", "Kubernetes"))
    assert world.effects == []
    world.pass_time(world.rules.reason_interval + 1)
    (again,) = world.effects
    assert again == told
    assert world.state_of(uid) is State.INVALID


def test_a_pod_without_an_open_node_waits_until_there_is_one(world: World) -> None:
    world.tell(ClusterObserved(replace(VIEW, nodes={})))
    uid = world.create_pod()
    told = only(world.settle(), ReportWaiting)
    assert told.cause.reason == "NoEligibleNode"
    world.tell(ClusterObserved(replace(VIEW, nodes={"n1": Node("n1", "n1", {})})))
    submitted = next(e for e in world.settle() if isinstance(e, Submit))
    assert submitted.job.excluded_nodes == ("n2",)
    assert world.state_of(uid) is State.ALLOCATED


def test_queued_job_follows_nodes_that_close_and_open(world: World) -> None:
    uid = world.queued_pod()
    for nodes, excluded in ((CORDONED.nodes, ("n1",)), (VIEW.nodes, ())):
        world.tell(ClusterObserved(replace(VIEW, nodes=nodes)))
        told = [e for e in world.settle() if isinstance(e, ExcludeNodes)]
        assert [(e.uid, e.nodes) for e in told] == [(uid, excluded)]
    assert world.tell_and_settle(ClusterObserved(replace(VIEW, nodes=dict(VIEW.nodes)))) == []


def test_queued_job_never_excludes_every_node(world: World) -> None:
    world.bind_a_pod_to_each_node()
    world.create_pod()
    world.settle()
    assert world.tell_and_settle(ClusterObserved(replace(VIEW, nodes={}))) == []


def test_problem_is_reported_once_and_not_with_every_retry(world: World) -> None:
    world.create_pod()
    world.hear()
    told = []
    for _ in range(5):
        effects, world.acting.effects = world.effects, []
        for effect in effects:
            if isinstance(effect, Submit):
                world.finish(effect, Failure(Remedy.AGAIN, "no connection"))
            else:
                told.append(effect)
                world.finish(effect, None)
        world.pass_time(10.0)
    assert len(told) == 1


def test_an_edited_partition_moves_a_waiting_pod_to_the_other_line() -> None:
    world = World(PlacementConfig(window=1, fast_path=False))
    first, second = world.create_pod(), world.settled_pod()
    assert world.state_of(second) is State.SEEN
    world.change_request(second, partition="other")
    world.settle()
    assert world.state_of(second) is State.QUEUED
    world.remove_pod(second)
    world.remove_and_settle(first)
    calm_down(world, 3)


def test_queued_job_excludes_nodes_as_soon_as_its_pod_rules_them_out(world: World) -> None:
    """Kubernetes allows the author of a gated Pod to narrow the affinity."""
    uid = world.queued_pod()
    field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    request = replace(world.pods[uid].request, constraints=NodeConstraints.parse({"affinity": affinity}))
    world.write(world.pods[uid]._replace(request=request))
    told = [each for each in world.settle() if isinstance(each, ExcludeNodes)]
    assert [(each.uid, each.nodes) for each in told] == [(uid, ("n1",))]
    assert world.state_of(uid) is State.QUEUED
