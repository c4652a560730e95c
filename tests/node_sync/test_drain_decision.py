"""Tests of decisions about drains, and about the Node's condition and taint."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from extender.node_sync.drain_decision import (
    TAINT,
    DrainContext,
    DrainSettings,
    ObservedNode,
    OutstayingPod,
    Tally,
    condition_of,
    order,
    outstaying_pods,
    taints_wrong,
    wants_taint,
    with_taint,
)
from extender.node_sync.drains import PREFIX, TAKE_BACK, DrainCause, reason_still_holds
from extender.node_view.node_conditions import NodeCondition, NodeStatus
from extender.pod_request.constraints.node_constraints import Taint
from slurm_client.model import Node as SlurmNode
from tests.builders import kube_node, node_manifest
from tests.placement.ledger_world import World
from wellknown.names import SLURM_OUT_OF_SERVICE, NodeReason

NOW = 1_800_000_000.0
SETTINGS = DrainSettings(keys=frozenset({"disk"}), taint=True, conditions=frozenset({"Gpu"}))
AT = DrainContext(NOW, SETTINGS)
TAINTED_DISK = PREFIX + "tainted disk in Kubernetes"
CORDONED = PREFIX + "cordoned in Kubernetes"
UNREADY = PREFIX + "not ready in Kubernetes"
OUTSTAYED = PREFIX + "Pod default/{} is still there though its job has ended"
BY_HAND = "disk is to be replaced"
FOR_KUBERNETES = NodeCondition(True, "DrainedForKubernetes", f"drained in Slurm: {CORDONED}", NOW - 60)
RESUMED = NodeCondition(False, "ResumedByHand", f"resumed in Slurm in spite of: {CORDONED}", NOW - 60)
TAINTED = ({"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect},)


def slurm_node(*states: str, reason: str = "") -> SlurmNode:
    return SlurmNode("n1", frozenset(states or {"IDLE"}), 8, 16_000, reason=reason)


DRAINED = slurm_node("IDLE", "DRAIN", reason=CORDONED)


def observed(
    slurm: SlurmNode | None = None,
    *,
    cordoned: bool = False,
    taints: Sequence[Mapping[str, str]] = (),
    ready: bool = True,
    told: NodeCondition | None = None,
    there: tuple[OutstayingPod, ...] = (),
    problems: tuple[tuple[str, str], ...] = (),
) -> ObservedNode:
    """Returns a healthy node, except for the given fields."""
    node = kube_node("n1", taints=taints, unschedulable=cordoned)
    return ObservedNode(node, NodeStatus(ready, told, problems), slurm or slurm_node(), there)


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


def outstaying(name: str, *, overdue: bool = False) -> OutstayingPod:
    return OutstayingPod(f"default/{name}", overdue)


# Causes of a drain


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"cordoned": True}, CORDONED),
        ({"ready": False}, UNREADY),
        ({"taints": [taint("other"), taint("disk", "NoExecute")]}, TAINTED_DISK),
        ({"there": (outstaying("young"), outstaying("old", overdue=True))}, OUTSTAYED.format("old")),
        ({"cordoned": True, "ready": False, "taints": [taint("disk")]}, CORDONED),
    ],
)
def test_node_closed_in_kubernetes_is_drained_and_resumed_later(given: Any, reason: str) -> None:
    assert order(observed(**given), AT) == reason
    drained = slurm_node("IDLE", "DRAIN", reason=reason)
    assert order(observed(drained, **given), AT) is None
    assert order(observed(drained), AT) == TAKE_BACK


OFF = replace(AT, drain_settings=DrainSettings(drain=False))
UNSTEADY = replace(AT, steady=False)
IGNORED = replace(AT, ignored={DrainCause.NOT_READY: DrainCause.NOT_READY})
LONGER = slurm_node("IDLE", "DRAIN", reason=f"{CORDONED}, Low RealMemory")
OUTLIVES = slurm_node("IDLE", "DRAIN", reason=OUTSTAYED.format("p"))
DRAINED_UNREADY = slurm_node("IDLE", "DRAIN", reason=UNREADY)
REFUSED = observed(
    slurm_node("DRAIN", reason=PREFIX + "the gate refused job 7: Pods default/p"),
    there=(outstaying("p", overdue=True),),
)


@pytest.mark.parametrize(
    ("given", "at", "ordered"),
    [
        (observed(), AT, None),
        (observed(taints=[taint("other")]), AT, None),
        (observed(there=(outstaying("p"),)), AT, None),
        (observed(taints=TAINTED), AT, None),  # own taint: else a drain by hand never ends
        # Cases with jobs on the node
        (observed(slurm_node("ALLOCATED"), cordoned=True), AT, CORDONED),
        # Cases with a lost job on the node
        (replace(observed(cordoned=True), unsettled=True), AT, None),
        (replace(observed(DRAINED), unsettled=True), AT, TAKE_BACK),
        # A second cause replaces the first cause, but the extender keeps Slurm's additions to a reason
        (observed(DRAINED, ready=False), AT, UNREADY),
        (observed(LONGER, cordoned=True), AT, None),
        # Without the setting, the extender resumes nodes, except nodes that the gate drained
        (observed(cordoned=True), OFF, None),
        (observed(DRAINED, cordoned=True), OFF, TAKE_BACK),
        (replace(REFUSED, blocked=True), OFF, None),
        (REFUSED, OFF, TAKE_BACK),
        # The drain for an outstaying Pod survives a change of the leader
        (observed(OUTLIVES, there=(outstaying("p"),)), AT, None),
        (observed(OUTLIVES, there=(outstaying("q"),)), AT, TAKE_BACK),
        # A second cause drains a node that was resumed by hand
        (observed(ready=False, told=RESUMED), AT, UNREADY),
        # A killed slurmctld may have lost a drain
        (observed(cordoned=True, told=replace(FOR_KUBERNETES, since=NOW - 3)), AT, CORDONED),
        (observed(cordoned=True, told=FOR_KUBERNETES), UNSTEADY, CORDONED),
        (observed(cordoned=True, told=RESUMED), UNSTEADY, None),
        # If a cause affects too many nodes, the drain stays, and a cordon still drains
        (observed(DRAINED_UNREADY, ready=False), IGNORED, None),
        (observed(DRAINED_UNREADY), IGNORED, TAKE_BACK),
        (observed(ready=False, cordoned=True), IGNORED, CORDONED),
    ],
)
def test_order_drains_or_takes_back(given: ObservedNode, at: DrainContext, ordered: str | None) -> None:
    assert order(given, at) == ordered


def test_node_is_not_resumed_while_a_job_is_completing() -> None:
    """If the job cannot be killed, Slurm drains the node, and an earlier drain hides Slurm's drain."""
    ending = slurm_node("MIXED", "COMPLETING", "DRAIN", reason=CORDONED)
    assert order(observed(ending), AT) is None
    told = condition_of(observed(ending), AT)
    assert told is not None
    assert told.message == "its drain in Slurm is taken back when no job is ending there"
    assert order(observed(slurm_node("MIXED", "COMPLETING"), cordoned=True), AT) == CORDONED


# Drains that the extender leaves alone


@pytest.mark.parametrize("reason", [BY_HAND, "", "Prolog error", f"see {CORDONED}"])
@pytest.mark.parametrize("cordoned", [True, False])
def test_foreign_drain_and_its_reason_are_left_alone(reason: str, cordoned: bool) -> None:
    assert order(observed(slurm_node("IDLE", "DRAIN", reason=reason), cordoned=cordoned), AT) is None


@pytest.mark.parametrize("states", [("DOWN",), ("DOWN", "DRAIN"), ("FUTURE",), ("UNKNOWN",)])
@pytest.mark.parametrize("cordoned", [True, False])
def test_a_node_that_is_not_up_is_left_alone(states: tuple[str, ...], cordoned: bool) -> None:
    assert order(observed(slurm_node(*states, reason=CORDONED), cordoned=cordoned), AT) is None


def test_resume_by_hand_stays_while_the_cause_is_the_same() -> None:
    resumed = observed(cordoned=True, told=FOR_KUBERNETES)
    assert order(resumed, AT) is None
    assert condition_of(resumed, AT) == RESUMED
    later = observed(cordoned=True, told=RESUMED)
    assert (order(later, AT), condition_of(later, AT)) == (None, RESUMED)


def test_a_cordon_after_the_first_is_over_drains_again() -> None:
    over = condition_of(observed(told=RESUMED), AT)
    assert over == NodeCondition(False, "InService", "takes new jobs in Slurm")
    assert order(observed(cordoned=True, told=over), AT) == CORDONED


def test_interrupted_resume_by_the_extender_is_no_resume_by_hand() -> None:
    """The extender writes the condition before the resume. Then the Node is cordoned again, before the
    resume."""
    resuming = condition_of(observed(DRAINED, told=FOR_KUBERNETES), AT)
    assert resuming is not None
    assert order(observed(cordoned=True, told=resuming), AT) == CORDONED


# Too many at once


def many(unready: int, total: int = 12, **given: Any) -> list[ObservedNode]:
    return [observed(ready=number >= unready, **given) for number in range(total)]


@pytest.mark.parametrize(("unready", "acts"), [(1, True), (5, True), (6, False), (12, False)])
def test_no_more_nodes_are_drained_if_too_many_are_not_ready(unready: int, acts: bool) -> None:
    nodes = many(unready, 15)
    at = DrainContext.of(nodes, NOW, DrainSettings())
    assert order(nodes[0], at) == (UNREADY if acts else None)
    assert (not at.ignored) is acts
    assert Tally.of(nodes, at).suppressed == (0 if acts else unready)


def test_limit_is_a_third_of_the_nodes_of_a_large_cluster() -> None:
    assert not DrainContext.of(many(33, 100), NOW, DrainSettings()).ignored
    assert DrainContext.of(many(34, 100), NOW, DrainSettings()).ignored


def test_listed_condition_drains_with_its_message() -> None:
    reason = f"{PREFIX}condition Gpu: GPU 3 has fallen off the bus"
    problems = (("DiskPressure", "full"), ("Gpu", "GPU 3 has fallen\noff the bus"))
    assert order(observed(problems=problems), AT) == reason
    assert order(observed(problems=problems[:1]), AT) is None
    drained = slurm_node("IDLE", "DRAIN", reason=reason)
    assert order(observed(drained, problems=problems), AT) is None
    assert order(observed(drained), AT) == TAKE_BACK
    assert reason_still_holds(reason, kube_node("n1"))


def test_long_message_of_a_condition_is_cut() -> None:
    assert len(order(observed(problems=(("Gpu", "x" * 5000),)), AT) or "") == 200


def test_no_more_nodes_are_drained_if_too_many_have_a_condition() -> None:
    sick = observed(problems=(("Gpu", "lost"),))
    nodes = [sick] * 6 + [observed()] * 9
    at = DrainContext.of(nodes, NOW, SETTINGS)
    assert order(sick, at) is None
    assert [*at.ignored.values()] == ["6 of 15 Nodes have a condition that drains: no more are drained"]
    assert Tally.of(nodes, at).suppressed == 6
    few = DrainContext.of([sick] * 5 + [observed()] * 10, NOW, SETTINGS)
    assert order(sick, few) == f"{PREFIX}condition Gpu: lost"


def test_no_more_nodes_are_tainted_if_too_many_are_down() -> None:
    down = slurm_node("DOWN")
    at = DrainContext.of([observed(down)] * 7 + [observed()] * 5, NOW, DrainSettings(taint=True))
    assert not wants_taint(observed(down), at)
    assert wants_taint(observed(down, taints=TAINTED), at)
    assert wants_taint(observed(slurm_node("DRAIN")), at)
    assert "7 of 12 nodes are down" in at.ignored["down"]


# Conditions of a Node


@pytest.mark.parametrize(
    ("slurm", "reason", "message"),
    [
        (slurm_node("IDLE", "DRAIN", reason=BY_HAND), "DrainedInSlurm", f"drained in Slurm: {BY_HAND}"),
        (slurm_node("MIXED", "DRAIN"), "DrainedInSlurm", "drained in Slurm: no reason is given"),
        (slurm_node("DOWN", reason="Not responding"), "DownInSlurm", "down in Slurm: Not responding"),
        (slurm_node("DOWN", "DRAIN", reason=BY_HAND), "DownInSlurm", f"down in Slurm: {BY_HAND}"),
        (DRAINED, "Resuming", "its drain in Slurm is being taken back"),
    ],
)
def test_condition_has_the_reason_in_slurm(slurm: SlurmNode, reason: str, message: str) -> None:
    assert condition_of(observed(slurm), AT) == NodeCondition(True, reason, message)


def test_drain_by_the_extender_has_its_own_condition() -> None:
    assert condition_of(observed(DRAINED, cordoned=True), AT) == FOR_KUBERNETES


def test_node_that_was_never_out_of_service_gets_no_condition() -> None:
    assert condition_of(observed(), AT) is None


def test_a_long_reason_is_cut() -> None:
    told = condition_of(observed(slurm_node("DRAIN", reason="x" * 5000)), AT)
    assert told is not None
    assert len(told.message) == 1024


def test_a_condition_is_read_as_it_was_written() -> None:
    conditions = [
        {"type": "Ready", "status": "Unknown"},
        {"type": "PIDPressure", "status": "False", "message": "sufficient"},
        {"type": "DiskPressure", "status": "True", "message": "full"},
        {"type": "Bare", "status": "True"},
        {
            "type": SLURM_OUT_OF_SERVICE,
            "status": "True",
            "reason": "DownInSlurm",
            "message": "down",
            "lastTransitionTime": "2027-01-15T08:00:00Z",
        },
    ]
    node_status = NodeStatus.parse(node_manifest() | {"status": {"conditions": conditions}})
    problems = (("Bare", ""), ("DiskPressure", "full"))
    assert node_status == NodeStatus(False, NodeCondition(True, "DownInSlurm", "down"), problems)
    assert node_status.condition is not None
    assert node_status.condition.since == 1_800_000_000
    assert NodeStatus.parse(node_manifest()) == NodeStatus(True, None)


# Taints of a Node


@pytest.mark.parametrize(
    ("slurm", "wanted"),
    [
        (slurm_node("IDLE", "DRAIN", reason=BY_HAND), True),
        (slurm_node("DOWN"), True),
        (slurm_node("DOWN", "DRAIN", reason=CORDONED), True),
        (slurm_node(), False),
        (DRAINED, False),
    ],
)
def test_setting_taints_nodes_that_slurm_closed(slurm: SlurmNode, wanted: bool) -> None:
    assert wants_taint(observed(slurm), AT) is wanted
    assert taints_wrong(observed(slurm), AT) is wanted
    assert taints_wrong(observed(slurm, taints=TAINTED), AT) is not wanted
    unwished = replace(AT, drain_settings=DrainSettings())
    assert not taints_wrong(observed(slurm), unwished)
    assert taints_wrong(observed(slurm, taints=TAINTED), unwished)


def test_other_taints_stay_unchanged() -> None:
    others = [taint("disk") | {"timeAdded": "2026-11-22T00:00:00Z"}, taint(TAINT.key, "NoExecute")]
    assert with_taint(others, wanted=True) == [*others, *TAINTED]
    assert with_taint([*others, *TAINTED], wanted=True) == [*others, *TAINTED]
    assert with_taint([*TAINTED, *others], wanted=False) == others


def test_taint_of_a_person_with_the_same_key_is_kept() -> None:
    theirs = [taint(TAINT.key, value="mine")]
    for slurm in (slurm_node("DOWN"), slurm_node()):
        assert not taints_wrong(observed(slurm, taints=theirs), AT)
    assert with_taint(theirs, wanted=True) == with_taint(theirs, wanted=False) == theirs
    assert Taint(TAINT.key, "mine", TAINT.effect) != TAINT


# Counts of drains


def test_nodes_are_counted_by_the_cause_of_their_drain() -> None:
    unready = slurm_node("DRAIN", reason=UNREADY)
    by_hand = slurm_node("DRAIN", reason=BY_HAND)
    nodes = [
        observed(DRAINED, cordoned=True),
        observed(unready, ready=False),
        observed(by_hand),
        observed(),
    ]
    assert Tally.of(nodes, AT) == Tally({DrainCause.CORDONED: 1, DrainCause.NOT_READY: 1})


def test_oldest_drain_of_each_cause_is_reported() -> None:
    told = [
        NodeCondition(True, NodeReason.DRAINED_FOR_KUBERNETES, "", since=since) for since in (30.0, 20.0)
    ]
    nodes = [observed(DRAINED, cordoned=True, told=each) for each in told]
    by_hand = NodeCondition(True, NodeReason.DRAINED_IN_SLURM, "", since=10.0)
    nodes.append(observed(slurm_node("DRAIN", reason=BY_HAND), told=by_hand))
    tally = Tally.of(nodes, AT)
    assert (tally.drained, tally.oldest) == ({DrainCause.CORDONED: 2}, {DrainCause.CORDONED: 20.0})


# Pods that outstay their jobs


def there(world: World, before: float) -> dict[str, tuple[OutstayingPod, ...]]:
    return outstaying_pods(world.ledger.evicting, before)


def test_pod_outstays_its_job_until_its_own_end() -> None:
    world = World()
    uid = world.bound_pod()
    assert there(world, world.now) == {}
    world.disturb(world.job_id_of(uid), "CANCELLED")
    world.ask()
    world.answer()
    assert there(world, world.now - 1) == {"n1": (outstaying("p1"),)}
    assert there(world, world.now) == {"n1": (outstaying("p1", overdue=True),)}
    world.settle()
    assert there(world, world.now) == {}


def test_pod_outstays_its_job_after_the_grace_time_of_the_job() -> None:
    world = World()
    job_id = world.job_id_of(world.bound_pod())
    world.begin_grace(job_id)
    world.read_jobs()
    began = world.now
    world.pass_time(60)
    assert there(world, world.now) == {}
    world.disturb(job_id, "PREEMPTED")
    world.ask()
    world.answer()
    assert there(world, began) == {"n1": (outstaying("p1"),)}
    assert there(world, world.now) == {"n1": (outstaying("p1", overdue=True),)}
