"""Pods that cannot be bound get few jobs, so that such Pods take few resources from other Pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.explain.sentences import sentence
from extender.placement.ledger import Ledger
from extender.placement.transitions.kept_back import may_be_given
from extender.pod_request.constraints.node_constraints import Node
from extender.pod_request.feasible_nodes import FeasibleNodes
from extender.record.config import PlacementConfig
from extender.record.events import (
    CancelJob,
    ClusterObserved,
    Effect,
    Failure,
    Remedy,
    ReportWaiting,
    Submit,
    WriteAllocation,
)
from extender.record.states import State
from tests.builders import changed
from tests.memory import kept
from tests.placement.ledger_world import (
    NO_CLAIM,
    NODES,
    REFUSAL,
    REQUEST,
    VIEW,
    World,
    calm_down,
    ends_well,
    of_kind,
)
from wellknown.names import GATE

HOUR = 3600


def told(world: World, uid: str) -> str:
    """Returns the message of the Pod's condition; "" without a condition."""
    shown = world.record(uid).members[0].shown
    return sentence(shown) if shown else ""


def live_on(world: World, seconds: int) -> None:
    """Lets time pass. Every second, all effects are carried out, and kube-scheduler tries the Pod."""
    for _ in range(seconds):
        world.catch_up()
        world.pass_time(1.0)
    world.settle()


def never_bound(seconds: int = HOUR) -> tuple[World, str]:
    """Creates a Pod that kube-scheduler rejects before calling the extender. Returns the world after the
    given seconds, and the uid of the Pod."""
    world = World(PlacementConfig())
    uid = world.create_pod()
    world.unbindable.add(uid)
    live_on(world, seconds)
    return world, uid


def test_next_leader_acts_on_a_refusal_that_comes_after_its_start(world: World) -> None:
    """The new leader writes nothing, because the Pod already has the allocation. So the Pod gets no new
    version before the refusal."""
    uid = world.settled_pod()
    world.restart_and_settle()
    world.say(uid, REFUSAL)
    world.settle()
    world.wait(1.0, times=10)
    assert world.state_of(uid) is not State.ALLOCATED


# A missing object of the Pod


def test_no_job_is_requested_while_a_claim_is_missing(world: World) -> None:
    uid = world.create_pod(obstacle=NO_CLAIM)
    live_on(world, 60)
    assert (world.jobs, world.held_s[uid], world.state_of(uid)) == ({}, 0, State.SEEN)
    assert told(world, uid) == sentence(NO_CLAIM)
    world.claim(uid, missing=False)
    world.settle()
    assert world.state_of(uid) is State.ALLOCATED


def test_claim_made_shortly_after_its_pod_is_not_reported_missing(world: World) -> None:
    uid = world.create_pod(obstacle=NO_CLAIM)
    done = world.settle()
    world.pass_time(0.5)
    world.claim(uid, missing=False)
    assert not of_kind((*done, *world.settle()), ReportWaiting)


def test_queued_job_is_cancelled_after_the_claim_of_its_pod_is_gone(world: World) -> None:
    uid = world.queued_pod()
    world.claim(uid, missing=True)
    assert of_kind(world.settle(), CancelJob)
    live_on(world, 5)
    assert (world.live_jobs(uid), told(world, uid)) == ([], sentence(NO_CLAIM))


def test_restarted_leader_cancels_the_job_of_a_pod_without_its_claim(world: World) -> None:
    uid = world.queued_pod()
    world.acting.effects.clear()
    world.pods[uid] = changed(world.pods[uid], obstacle=NO_CLAIM)
    world.restart()
    live_on(world, 5)
    assert (world.live_jobs(uid), told(world, uid)) == ([], sentence(NO_CLAIM))


def test_job_of_a_deposed_leader_is_cancelled_while_the_claim_is_missing(world: World) -> None:
    world.fail_over()
    world.swap()  # the deposed leader does not know of the next leader
    uid = world.create_pod()
    world.edit(uid, 2001)
    world.catch_up()
    (job,) = world.live_jobs(uid)
    world.claim(uid, missing=True)
    world.swap()
    world.other = None
    world.settle()
    assert world.live_jobs(uid) == [job]  # the leader knows the Pod, but not the job
    calm_down(world, 61)
    assert not world.live_jobs(uid)
    world.claim(uid, missing=False)
    calm_down(world, 40)
    ends_well(world)
    assert world.pods[uid].life.node is not None


def test_pod_shows_other_gates_before_a_missing_claim(world: World) -> None:
    uid = world.create_pod(obstacle=NO_CLAIM)
    gates = (GATE, "kueue.x-k8s.io/admission")
    world.change_pod(uid, gates=gates)
    live_on(world, 3)
    assert "kueue" in told(world, uid)
    world.change_pod(uid, gates=(GATE,))
    live_on(world, 3)
    assert told(world, uid) == sentence(NO_CLAIM)


# kube-scheduler rejects every Node


def test_pod_refused_before_the_extender_is_called_gets_only_one_job() -> None:
    world, uid = never_bound()
    assert world.started[uid] == 1
    assert world.held_s[uid] <= 2
    assert REFUSAL in told(world, uid)


def test_pod_without_a_kube_scheduler_message_gets_only_one_job() -> None:
    """kube-scheduler never tries the Pod while a ResourceClaim is missing."""
    world = World(PlacementConfig())
    uid = world.create_pod()
    for _ in range(HOUR):
        world.settle()
        world.poll_alone()
        world.unbindable.add(uid)
        world.pass_time(1.0)
    world.settle()
    assert world.started[uid] == 1
    assert world.held_s[uid] <= world.rules.unbound_deadline + 2
    assert "kube-scheduler gave no reason" in told(world, uid)


def test_a_pod_is_placed_as_soon_as_kube_scheduler_finds_nodes_for_it() -> None:
    world, uid = never_bound(60)
    world.unbindable.clear()
    live_on(world, 3)
    assert world.pods[uid].life.node


def test_restarted_leader_also_waits_until_kube_scheduler_finds_nodes() -> None:
    world, uid = never_bound(60)
    for _ in range(5):
        world.restart()
        live_on(world, 60)
    assert world.started[uid] == 1
    assert "times in a row" not in told(world, uid)
    world.unbindable.clear()
    live_on(world, 3)
    assert world.pods[uid].life.node


def test_nodes_found_for_an_earlier_attempt_do_not_count_for_the_next() -> None:
    world, uid = never_bound(60)
    world.unbindable.clear()
    world.look(uid)
    world.unbindable.add(uid)
    live_on(world, HOUR)
    assert world.started[uid] == 2


@pytest.mark.parametrize(("lasts", "most"), [(35, 2), (95, 3), (215, 4), (24 * HOUR, 52)])
def test_backoff_grows_for_a_pod_that_is_refused_after_filter(lasts: int, most: int) -> None:
    """After kube-scheduler has found Nodes, a plugin rejects the Pod in Reserve or Permit."""
    world = World(PlacementConfig())
    uid = world.create_pod()
    step = 1.0 if lasts < HOUR else 30.0
    for _ in range(int(lasts / step)):
        world.settle()
        if not world.pods[uid].scheduling.allocation:
            world.look(uid)
        world.settle_refused(uid)
        world.poll_alone()
        world.pass_time(step - 0.3)
    assert most - 1 <= world.started[uid] <= most


def another_comes_and_goes(world: World) -> None:
    other = world.create_pod()
    live_on(world, 2)
    world.remove_pod(other)
    live_on(world, 1)


def test_leaving_pods_do_not_end_the_backoff_after_several_refusals() -> None:
    """kube-scheduler's message names the full Nodes, and Nodes that do not fit for another reason. So
    room on a full Node may not help the Pod."""
    world = World(PlacementConfig())
    world.unbindable.add(uid := world.create_pod())
    full = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod affinity rules."
    for _ in range(120):
        live_on(world, 2)
        world.say(uid, full)
        another_comes_and_goes(world)
    assert 2 <= world.started[uid] <= 6  # in ten minutes


@pytest.mark.parametrize("lacking", ["Insufficient cpu", "Insufficient nvidia.com/gpu", "Too many pods"])
def test_pod_that_lacks_only_room_gets_a_second_job_after_the_backoff(lacking: str) -> None:
    world, uid = never_bound(10)
    world.say(uid, f"0/2 nodes are available: 2 {lacking}.")
    live_on(world, 15)
    assert world.started[uid] == 1
    live_on(world, 10)
    assert world.started[uid] == 2


def test_pod_that_no_job_can_give_room_gets_only_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Pod lacks a resource that Slurm does not count. So other Pods that come and go give the Pod no
    room."""
    lacking = "0/2 nodes are available: 2 Insufficient example.com/license."
    monkeypatch.setattr("tests.placement.ledger_world.REFUSAL", lacking)
    world = World(PlacementConfig())
    world.unbindable.add(uid := world.create_pod())
    for _ in range(20):
        live_on(world, 1)
        another_comes_and_goes(world)
    assert world.started[uid] == 1


def test_new_versions_of_a_pod_in_backoff_add_no_wake_times() -> None:
    world, uid = never_bound(10)
    resting = world.record(uid)
    assert world.now < resting.rejections.rests_until
    for number in range(50):
        world.change_and_settle(uid, end=f"{number}")
    noted = [due for due, who in world.ledger._wakes.noted if who == uid]
    assert noted.count(resting.rejections.rests_until) == 1
    assert len(noted) < 10


def test_a_forged_offer_of_a_gated_pod_changes_nothing(world: World) -> None:
    uid = world.create_pod(obstacle=NO_CLAIM)
    world.change_pod(uid, attempt=7, feasible_nodes=FeasibleNodes(0, ("n1",)))
    live_on(world, 60)
    assert not world.started[uid]


def test_unbindable_pods_and_pods_without_claims_end_consistently() -> None:
    world, uid = never_bound(60)
    missing = world.create_pod(obstacle=NO_CLAIM)
    world.create_pod()
    calm_down(world)
    ends_well(world)
    assert not any(isinstance(effect, Submit) for effect in world.effects)
    assert (world.started[uid], world.started[missing]) == (1, 0)


def test_job_excludes_nodes_that_kube_scheduler_did_not_find() -> None:
    world, uid = never_bound(60)
    world.unbindable.clear()
    refused = next(iter(job.nodes[0] for job in world.jobs.values()))
    world.change_pod(uid, feasible_nodes=FeasibleNodes(0, (refused,)))
    (asked,) = (effect for effect in world.settle() if isinstance(effect, Submit))
    assert asked.job.excluded_nodes == tuple(name for name in NODES if name != refused)


@pytest.mark.parametrize(
    ("asks", "found", "worth"),
    [
        ({}, ("n1",), True),
        ({}, ("elsewhere",), False),
        ({}, ("nowhere",), False),
        ({"required_nodes": ("n2",)}, ("n1",), False),
        ({"excluded_nodes": ("n1",)}, ("n1",), False),
        ({"excluded_nodes": ("n1",)}, ("n1", "n2"), True),
        ({"partition": "unknown"}, ("elsewhere",), True),
    ],
)
def test_found_nodes_are_worth_a_job_only_if_slurm_may_choose_one(
    asks: dict[str, Any], found: tuple[str, ...], worth: bool
) -> None:
    view = replace(VIEW, nodes={**VIEW.nodes, "elsewhere": Node("elsewhere", "elsewhere", {})})
    request = replace(REQUEST, job=replace(REQUEST.job, **asks))
    assert may_be_given(request, found, view) is worth


def test_nodes_found_by_kube_scheduler_are_not_kept_in_memory() -> None:
    view = replace(VIEW)

    def ask() -> None:
        for which in range(20):
            others = (f"elsewhere-{which}-{n}" for n in range(1_000))
            assert may_be_given(REQUEST, ("n1", *others), view)

    assert kept(ask) < 100_000


def test_more_than_a_few_unbindable_pods_are_reported() -> None:
    told = list[str | None]()
    world = World(PlacementConfig())
    world.acting.ledger = Ledger(world.rules, unbindable=lambda pods: told.append(pods.words))
    world.tell(ClusterObserved(VIEW))
    for _ in range(6):
        uid = world.create_pod()
        world.unbindable.add(uid)
        live_on(world, 5)
    assert told[-2:] != [None, None]
    assert "6 Pods" in (told[-1] or "")
    world.remove_and_settle("u1")
    assert told[-1] is None


# Failed writes of the allocation


class Unwritable(World):
    """A world where another client writes to each Pod just before the write of the allocation."""

    def do(self, effect: Effect) -> object:
        if isinstance(effect, WriteAllocation):
            return Failure(Remedy.FRESHER, "the object has been modified")
        return super().do(effect)


def test_backoff_grows_while_the_allocation_cannot_be_written() -> None:
    """The Pod's condition shows the problem. The ledger does not wait for kube-scheduler, because the
    Pod still has the scheduling gate."""
    world = Unwritable(PlacementConfig())
    uid = world.create_pod()
    live_on(world, 60)
    assert world.started[uid] == 2
    live_on(world, 5)
    words = "could not write Slurm's allocation onto the Pod in time, 2 times in a row"
    assert words in told(world, uid)
    live_on(world, HOUR)
    assert 7 <= world.started[uid] <= 8


# Nodes that the extender rejects


def test_pod_without_room_on_a_node_waits_in_slurm_for_other_nodes() -> None:
    """kube-scheduler accepts the Node, and only the extender rejects the Node. So this rejection does
    not make the Pod's backoff longer."""
    world = World(PlacementConfig())
    blocking = world.bound_pod()
    (elsewhere,) = set(NODES) - {world.pods[blocking].life.node}
    world.taken.add(elsewhere)
    uid = world.create_pod()
    live_on(world, 5)
    assert (world.state_of(uid), world.started[uid]) == (State.QUEUED, 1)
    (waits,) = world.live_jobs(uid)
    assert waits.excluded_nodes == (elsewhere,)
    free = world.pods[blocking].life.node
    world.remove_pod(blocking)
    live_on(world, 5)
    assert (world.pods[uid].life.node, world.started[uid]) == (free, 2)


def test_pod_without_room_on_every_node_waits_with_backoff() -> None:
    world = World(PlacementConfig())
    world.taken |= set(NODES)
    uid = world.create_pod()
    live_on(world, HOUR)
    assert world.started[uid] <= 14  # in an hour
