"""Tests of the messages that tell a Pod's author why all Nodes are closed."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from extender.explain.cause import Cause, Kind
from extender.explain.sentences import sentence
from extender.node_view.closings import closed_nodes
from extender.node_view.view import ClusterView, Wish
from extender.pod_request.constraints.node_constraints import NodeConstraints
from extender.record.events import ClusterObserved, ReportWaiting, Submit
from tests.builders import kube_node, view
from tests.placement.ledger_world import REQUEST, VIEW, World

TAINTED = {"taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}]}
CLUSTER = view(
    *(kube_node(f"t{n}", {"pool": "a"}, **TAINTED) for n in range(5)),
    *(kube_node(f"b{n}", {"pool": "b"}) for n in range(6)),
    kube_node("c", {"pool": "a"}, unschedulable=True),
)


def why_none(spec: dict[str, Any], cluster: ClusterView = CLUSTER, **wish: Any) -> str:
    return sentence(cluster.why_none(Wish(NodeConstraints.parse(spec), "main", **wish)))


def affinity(*names: str) -> dict[str, Any]:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def test_each_closed_node_is_counted_once_by_its_cause() -> None:
    assert why_none({"nodeSelector": {"pool": "a"}}) == (
        "0/12 Nodes: 6 do not match node selector pool=a, 5 have taint {team: ml} that the Pod does"
        " not tolerate, 1 is cordoned"
    )


@pytest.mark.parametrize(
    ("spec", "wish", "words"),
    [
        (affinity("nowhere"), {}, "6 do not match the Pod's required node affinity"),
        ({}, {"required": ("c",)}, "11 are not among the Pod's required-nodes, 1 is cordoned"),
        ({}, {"excluded": ("b[0-5]",)}, "6 are among the Pod's excluded-nodes"),
        ({}, {"avoid": frozenset({"b0"})}, "1 is excluded for a while"),
        ({}, {"feasible_nodes": ("t1",)}, "6 are not among the Nodes that kube-scheduler found"),
    ],
)
def test_every_cause_of_closed_nodes_is_reported(
    spec: dict[str, Any], wish: dict[str, Any], words: str
) -> None:
    assert words in why_none(spec, **wish)


def test_nodes_without_the_volumes_of_the_pod_are_reported() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]
    claimed = NodeConstraints.parse({}).with_claimed([terms])
    told = sentence(CLUSTER.why_none(Wish(claimed, "main")))
    assert "6 are not where the Pod's volumes are" in told


def test_node_without_allocatable_devices_is_reported_with_the_reason() -> None:
    machine = kube_node("gpu")
    served, none = ({"cpu": "8", "nvidia.com/gpu": amount} for amount in ("8", "0"))
    nodes = (replace(machine, name=name, slurm_name=name, allocatable=none) for name in ("a", "b"))
    closed = replace(machine, allocatable=served, unschedulable=True)
    asked = NodeConstraints.parse({}).with_devices(["nvidia.com/gpu"])
    told = sentence(view(*nodes, closed).why_none(Wish(asked, "main")))
    assert told == (
        "0/3 Nodes: 2 have no allocatable nvidia.com/gpu (Dynamic Resource Allocation does not count,"
        " because kube-scheduler would choose other devices than Slurm), 1 is cordoned"
    )


def test_partition_without_kubernetes_nodes_is_reported() -> None:
    nowhere = replace(CLUSTER, nodes={})
    assert why_none({}, nowhere) == "no Node stands for any node of the partition"


def test_only_the_most_frequent_reasons_are_listed() -> None:
    closed = Counter({Cause.of(Kind.TAINTED, key=f"t{n}", value=""): n for n in range(1, 10)})
    told = sentence(closed_nodes(45, closed))
    assert told.startswith("0/45 Nodes: 9 have taint {t9: } that")
    assert told.endswith("10 for other reasons")
    assert told.count("taint") == 5


def test_node_changes_do_not_repeat_the_report_on_a_waiting_pod() -> None:
    world = World()
    closed = VIEW
    for name in VIEW.nodes:
        closed = closed.with_node(name, replace(VIEW.nodes[name], unschedulable=True))
    world.tell(ClusterObserved(closed))
    world.create_pod()
    done = world.settle()
    words = "no Node of partition main is open to this Pod: 0/2 Nodes: 2 are cordoned"
    assert [sentence(each.cause) for each in done if isinstance(each, ReportWaiting)] == [words]
    done = []
    for number in range(30):
        other = replace(VIEW.nodes["n1"], unschedulable=True, labels={"a": f"{number}"})
        node = None if number % 2 else other
        world.tell(ClusterObserved(closed.with_node("n1", node)))
        world.pass_time(1.0)
        done += world.settle()
    assert 1 <= sum(isinstance(each, ReportWaiting) for each in done) <= 4


def test_a_pod_waits_for_a_node_that_registers_its_devices() -> None:
    """If no Node has the Pod's devices (for example with Dynamic Resource Allocation), the extender
    submits no job."""
    world, closed = World(), VIEW
    for name, node in VIEW.nodes.items():
        closed = closed.with_node(name, replace(node, allocatable={"cpu": "8"}))
    world.tell(ClusterObserved(closed))
    needs = REQUEST.constraints.with_devices(["nvidia.com/gpu"])
    world.create_pod(request=replace(REQUEST, constraints=needs))
    done = world.settle()
    (told,) = (each.cause for each in done if isinstance(each, ReportWaiting))
    assert told.reason == "NoEligibleNode"
    assert "0/2 Nodes: 2 have no allocatable nvidia.com/gpu (Dynamic Resource" in sentence(told)
    assert not [each for each in done if isinstance(each, Submit)]
    served = replace(VIEW.nodes["n2"], allocatable={"cpu": "8", "nvidia.com/gpu": "4"})
    world.tell(ClusterObserved(closed.with_node("n2", served)))
    (submit,) = (each for each in world.settle() if isinstance(each, Submit))
    assert submit.job.excluded_nodes == ("n1",)
