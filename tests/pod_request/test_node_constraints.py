"""Tests of the rules by which kube-scheduler excludes Nodes for a Pod."""

import tracemalloc
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from extender.node_view.node_index import Nodes
from extender.pod_request.constraints.node_constraints import Node, NodeConstraints
from tests.builders import kube_node, node_manifest
from wellknown.conditions import timestamp
from wellknown.names import DEVICE_PROBLEM

NO_SCHEDULE = {"key": "team", "value": "a", "effect": "NoSchedule"}


def admits(spec: dict[str, Any], node: Node) -> bool:
    return Nodes({node.name: node}).open_to(NodeConstraints.parse(spec)) != 0


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def matches(operator: str, *values: str, label: str | None) -> bool:
    """Returns True if an expression about `zone` matches a Node with this label; None means no label."""
    node = kube_node(labels={} if label is None else {"zone": label})
    return admits(required({"matchExpressions": [expression("zone", operator, *values)]}), node)


def test_node_needs_every_label_of_a_node_selector() -> None:
    assert admits({}, kube_node())
    selector = {"nodeSelector": {"zone": "a", "disk": "ssd"}}
    assert admits(selector, kube_node(labels={"zone": "a", "disk": "ssd", "more": "x"}))
    assert not admits(selector, kube_node(labels={"zone": "a"}))
    assert not admits(selector, kube_node(labels={"zone": "b", "disk": "ssd"}))


# Affinity


@pytest.mark.parametrize(
    ("operator", "values", "label", "expected"),
    [
        *(("In", ("a", "b"), label, label == "b") for label in ("b", "c")),
        ("In", ("a",), None, False),
        *(("NotIn", ("a",), label, label != "a") for label in ("b", "a", None)),
        *(("Exists", (), label, label is not None) for label in ("", None)),
        *(("DoesNotExist", (), label, label is None) for label in ("a", None)),
        *(("Gt", ("5",), label, True) for label in ("6", "10")),
        *(("Gt", ("5",), label, False) for label in ("5", None, "six", "1_000", str(2**63))),
        *(("Lt", ("5",), label, True) for label in ("4", "-4")),
        *(("Lt", ("5",), label, False) for label in ("5", None)),
        ("Lt", ("five",), "4", False),
        ("Near", ("5",), "5", False),
    ],
)
def test_operator_has_meaning_of_kubernetes(
    operator: str, values: tuple[str, ...], label: str | None, expected: bool
) -> None:
    assert matches(operator, *values, label=label) is expected


def test_one_term_must_match_with_all_its_expressions() -> None:
    first = {"matchExpressions": [expression("zone", "In", "a"), expression("disk", "Exists")]}
    second = {"matchExpressions": [expression("zone", "In", "b")]}
    assert admits(required(first, second), kube_node(labels={"zone": "b"}))
    assert admits(required(first, second), kube_node(labels={"zone": "a", "disk": "ssd"}))
    assert not admits(required(first, second), kube_node(labels={"zone": "a"}))


def test_match_fields_compare_the_name_of_the_node() -> None:
    term = {"matchFields": [expression("metadata.name", "In", "n1")]}
    assert admits(required(term), kube_node("n1"))
    assert not admits(required(term), kube_node("n2"))
    assert not admits(required(term), kube_node("n2", labels={"metadata.name": "n1"}))  # a label


def test_fields_and_expressions_of_a_term_must_both_match() -> None:
    term = {
        "matchFields": [expression("metadata.name", "In", "n1")],
        "matchExpressions": [expression("zone", "In", "a")],
    }
    assert admits(required(term), kube_node("n1", labels={"zone": "a"}))
    assert not admits(required(term), kube_node("n1"))
    assert not admits(required(term), kube_node("n2", labels={"zone": "a"}))


@pytest.mark.parametrize("terms", [(), ({},), ({"matchExpressions": None, "matchFields": []},)])
def test_an_affinity_without_requirements_matches_no_node(terms: tuple[dict[str, Any], ...]) -> None:
    assert not admits(required(*terms), kube_node())


@pytest.mark.parametrize("selector", [{}, {"nodeSelectorTerms": None}])
def test_incomplete_affinity_before_validation_matches_no_node(selector: Any) -> None:
    """A mutating webhook runs before validation, and Go writes a missing list as null."""
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}}
    assert not admits(spec, kube_node())


@pytest.mark.parametrize("affinity", [None, {}, {"nodeAffinity": None}, {"podAffinity": {"x": []}}])
def test_without_required_node_affinity_every_node_matches(affinity: Any) -> None:
    assert admits({"affinity": affinity}, kube_node())


def test_preferred_node_affinity_excludes_no_node() -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression("zone", "In", "a")]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert admits({"affinity": affinity}, kube_node())


def test_selector_and_affinity_must_both_match() -> None:
    spec = required({"matchExpressions": [expression("zone", "In", "a")]}) | {
        "nodeSelector": {"disk": "ssd"}
    }
    assert not admits(spec, kube_node(labels={"zone": "a"}))
    assert not admits(spec, kube_node(labels={"disk": "ssd"}))
    assert admits(spec, kube_node(labels={"zone": "a", "disk": "ssd"}))


# Taints


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
def test_taint_excludes_pods_unless_its_effect_is_a_preference(effect: str) -> None:
    tainted = kube_node(taints=[NO_SCHEDULE | {"effect": effect}])
    assert admits({}, tainted) is (effect == "PreferNoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "a"}, True),
        ({"key": "team", "value": "a", "operator": ""}, True),
        ({"key": "team", "value": "b"}, False),
        ({"key": "team"}, False),
        ({"key": "other", "value": "a"}, False),
        ({"key": "team", "value": "a", "effect": "NoExecute"}, False),
        ({"key": "team", "value": "a", "effect": ""}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "team", "operator": "Gt", "value": "a"}, False),
    ],
)
def test_toleration_has_meaning_of_kubernetes(toleration: dict[str, str], tolerates: bool) -> None:
    """Source: k8s.io/api/core/v1 Toleration.ToleratesTaint."""
    assert admits({"tolerations": [toleration]}, kube_node(taints=[NO_SCHEDULE])) is tolerates


def test_a_taint_without_a_value_is_tolerated_by_a_toleration_without_one() -> None:
    bare = {"key": "team", "effect": "NoSchedule"}
    assert admits({"tolerations": [{"key": "team"}]}, kube_node(taints=[bare]))
    assert not admits({"tolerations": [{"key": "team", "value": "a"}]}, kube_node(taints=[bare]))


def test_every_taint_must_be_tolerated() -> None:
    other = {"key": "other", "value": "", "effect": "NoExecute"}
    tainted = kube_node(taints=[NO_SCHEDULE, other])
    one = {"key": "team", "operator": "Exists"}
    assert not admits({"tolerations": [one]}, tainted)
    assert admits({"tolerations": [one, {"key": "other", "operator": "Exists"}]}, tainted)


def test_a_cordoned_node_is_closed_unless_the_cordon_is_tolerated() -> None:
    assert not admits({}, kube_node(unschedulable=True))
    cordon = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    assert admits({"tolerations": [cordon]}, kube_node(unschedulable=True))


def test_slurm_node_of_a_node_has_the_name_or_the_label_of_the_node() -> None:
    assert kube_node("n1").slurm_name == "n1"
    assert kube_node("n1", labels={"slurm": "gpu-01"}).slurm_name == "gpu-01"


def test_a_node_without_labels_spec_or_taints_is_read() -> None:
    node = Node.parse({"metadata": {"name": "n1"}}, "slurm")
    assert (node.name, node.slurm_name, node.taints, node.unschedulable) == ("n1", "n1", (), False)


def test_node_is_equal_after_a_heartbeat() -> None:
    """The extender publishes the cluster view after each change of a Node. A heartbeat must not count as
    a change."""
    beat = node_manifest("n1") | {"status": {"conditions": [{"lastHeartbeatTime": "now"}]}}
    assert Node.parse(beat, "slurm") == kube_node("n1")


@pytest.mark.parametrize("status", ["True", "False"])
def test_node_has_an_agent_if_the_condition_of_the_agent_exists(status: str) -> None:
    told = {"conditions": [{"type": DEVICE_PROBLEM, "status": status}]}
    assert Node.parse(node_manifest("n1") | {"status": told}, "slurm").has_agent
    assert not kube_node("n1").has_agent


def test_node_agent_is_gone_after_15_minutes_without_a_heartbeat() -> None:
    written = datetime(2026, 11, 29, 12, tzinfo=UTC)
    beat = {"type": DEVICE_PROBLEM, "status": "False", "lastHeartbeatTime": timestamp(written)}
    manifest = node_manifest("n1") | {"status": {"conditions": [beat]}}
    assert Node.parse(manifest, "slurm", written.timestamp() + 900).has_agent
    assert not Node.parse(manifest, "slurm", written.timestamp() + 901).has_agent


def test_node_constraints_take_less_than_500_bytes() -> None:
    """The text of a label could keep a buffer of thousands of bytes in memory."""
    kept = [NodeConstraints.parse({"nodeSelector": {"a": "b"}})]  # creates the shared objects
    tracemalloc.start()
    kept += [NodeConstraints.parse({"nodeSelector": {"a": str(number)}}) for number in range(1000)]
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / 1000 < 500


GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("allocatable", "served"),
    [
        ({"cpu": "8", GPU: "4"}, True),
        ({"cpu": "8", GPU: "0"}, False),  # the plugin has ended, or all devices have failed
        ({"cpu": "8"}, False),
        ({}, True),  # no kubelet yet: kube-scheduler rejects the Node
    ],
)
def test_a_node_serves_the_devices_that_are_allocatable(
    allocatable: Mapping[str, str], *, served: bool
) -> None:
    manifest = node_manifest("n1") | {"status": {"allocatable": allocatable}}
    node = Node.parse(manifest, "slurm")
    assert node.serves([GPU]) is served
    assert node.serves([])
    assert (node.served is None or GPU in node.served) is served


def test_a_node_stays_open_to_waiting_jobs_while_a_device_plugin_restarts() -> None:
    """After the end of a device plugin, the kubelet keeps the devices in the Node's capacity for five
    minutes. If the extender closed the Node at once, the extender would change each waiting job
    twice."""
    amounts = {"capacity": {"cpu": "8", GPU: "4"}, "allocatable": {"cpu": "8", GPU: "0"}}
    node = Node.parse(node_manifest("n1") | {"status": amounts}, "slurm")
    assert not node.serves([GPU])
    assert node.served == frozenset([GPU])
