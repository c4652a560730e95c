"""Each version of the index of Nodes gives the same result as a check of each Node."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.node_view.node_index import Nodes, NotServed
from extender.pod_request.constraints.node_constraints import Node, NodeConstraints, Taint
from tests.builders import Manifest, kube_node
from tests.hostile import affinity, expression

KEYS = ("zone", "rank", "disk")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["a", "b", "", "-1", "3", "07", "12"]))
TAINTS = st.lists(
    st.builds(
        Taint,
        st.sampled_from(["team", "gpu"]),
        st.sampled_from(["", "a"]),
        st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    ),
    max_size=2,
)
NODES = st.builds(
    lambda name, slurm, labels, taints, closed: Node(name, slurm, labels, tuple(taints), closed),
    st.sampled_from("nopqrs"),
    st.sampled_from("nst"),
    LABELS,
    TAINTS,
    st.booleans(),
)
EXPRESSIONS = st.builds(
    expression,
    st.sampled_from((*KEYS, "unheard-of")),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.sampled_from(["a", "b", "", "-1", "3", "07"]),
)
TERMS = st.builds(lambda labels: {"matchExpressions": labels}, st.lists(EXPRESSIONS, max_size=3))
TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(["", "team", "gpu"]),
            "operator": st.sampled_from(["Exists", "Equal"]),
            "value": st.sampled_from(["", "a"]),
            "effect": st.sampled_from(["", "NoSchedule", "NoExecute"]),
        },
    ),
    max_size=3,
)
SPECS = st.builds(
    lambda terms, selector, tolerations: (
        affinity(*terms) | {"nodeSelector": selector, "tolerations": tolerations}
    ),
    st.lists(TERMS, min_size=1, max_size=3),
    st.dictionaries(st.just("zone"), st.sampled_from("ab"), max_size=1),
    TOLERATIONS,
)


def is_open(node: Node, spec: Manifest) -> bool:
    """Checks one Node with a second implementation of the rules (k8s.io/component-helpers)."""
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    selected = all(node.labels.get(key) == value for key, value in spec["nodeSelector"].items())
    matched = any(_matches(term, node.labels) for term in terms["nodeSelectorTerms"])
    hard = [taint for taint in node.effective_taints if taint.effect != "PreferNoSchedule"]
    return selected and matched and all(_is_tolerated(taint, spec["tolerations"]) for taint in hard)


def _matches(term: Manifest, labels: Mapping[str, str]) -> bool:
    return bool(term["matchExpressions"]) and all(_meets(e, labels) for e in term["matchExpressions"])


def _meets(expression: Manifest, labels: Mapping[str, str]) -> bool:
    value, (wanted,) = labels.get(expression["key"]), expression["values"]
    match expression["operator"]:
        case "In":
            return bool(value == wanted)
        case "NotIn":
            return bool(value != wanted)
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            try:
                mine, bound = int(value or ""), int(wanted)
            except ValueError:
                return False
            return mine > bound if operator == "Gt" else mine < bound


def _is_tolerated(taint: Taint, tolerations: list[Any]) -> bool:
    for each in tolerations:
        key, exists = each.get("key") or "", each.get("operator") == "Exists"
        right_effect = (each.get("effect") or taint.effect) == taint.effect
        right_key = key == taint.key or (exists and not key)
        if right_effect and right_key and (exists or (each.get("value") or "") == taint.value):
            return True
    return False


def opened(nodes: Nodes, spec: Manifest) -> set[str]:
    found = nodes.open_to(NodeConstraints.parse(spec))
    return {name for name in nodes if nodes.named([name]) & found}


@given(st.lists(NODES, unique_by=lambda node: node.name), SPECS)
def test_index_opens_the_same_nodes_as_a_check_of_each_node(nodes: list[Node], spec: Manifest) -> None:
    index = Nodes({node.name: node for node in nodes})
    assert opened(index, spec) == {node.name for node in nodes if is_open(node, spec)}


@given(st.lists(NODES), st.lists(st.tuples(st.booleans(), NODES)), SPECS)
def test_changed_index_equals_a_newly_built_index(
    first: list[Node], changes: list[tuple[bool, Node]], spec: Manifest
) -> None:
    nodes = Nodes({node.name: node for node in first})
    for gone, node in changes:
        before, asked = dict(nodes), opened(nodes, spec)
        after = nodes.with_node(node.name, None if gone else node)
        assert (dict(nodes), opened(nodes, spec)) == (before, asked), "the version before has changed"
        nodes = after
    anew = Nodes(dict(nodes))
    assert opened(nodes, spec) == opened(anew, spec)
    assert {key: {*sets} for key, sets in nodes._sets.items()} == {
        key: {*sets} for key, sets in anew._sets.items()
    }
    for name in "nst":
        node_status = {n for n in nodes if nodes.named([n]) & nodes.standing_for(name)}
        assert node_status == {nodes.names.standing_for(name)} - {None}
        assert sorted(nodes.names.naming(name)) == sorted(anew.names.naming(name))


def test_place_of_a_deleted_node_is_reused() -> None:
    """Nodes are created and deleted for months. A set of Nodes is as large as the highest place in the
    set, so the index reuses places."""
    nodes = Nodes({"n0": kube_node("n0")})
    for number in range(1, 100):
        nodes = nodes.with_node(f"n{number}", kube_node(f"n{number}")).with_node(f"n{number - 1}", None)
    assert nodes.named(["n99"]).bit_length() <= 2


@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_label_without_a_number_matches_neither_gt_nor_lt(operator: str) -> None:
    nodes = Nodes({"n1": kube_node("n1", labels={"rank": "first"})})
    spec = affinity({"matchExpressions": [expression("rank", operator, "0")]})
    assert opened(nodes, spec) == set()


def test_numbers_of_removed_labels_are_dropped() -> None:
    nodes = Nodes({"n1": kube_node("n1")})
    for number in range(100):
        label = f"rank-{number}"
        nodes = nodes.with_node("n1", kube_node("n1", labels={label: "3"}))
        assert opened(nodes, affinity({"matchExpressions": [expression(label, "Gt", "2")]})) == {"n1"}
    assert len(nodes._numbers) == 1


def test_pod_that_needs_a_node_agent_keeps_its_other_constraints() -> None:
    nodes = Nodes({"n": Node("n", "n", {"zone": "a"}), "o": Node("o", "o", {"zone": "a"})})
    nodes = nodes.with_node("p", Node("p", "p", {"zone": "b"}, has_agent=True))
    wants = NodeConstraints.parse({"nodeSelector": {"zone": "a"}})
    needs = wants.with_agent()
    assert nodes.open_to(wants) == nodes.named("no")
    assert nodes.open_to(needs) == 0
    assert needs.with_agent() == needs
    assert needs.with_claimed([]).demands.agent
    later = nodes.with_node("o", Node("o", "o", {"zone": "a"}, has_agent=True))
    assert later.open_to(needs) == later.named("o")
    gone = later.with_node("o", Node("o", "o", {"zone": "a"}))
    assert gone.open_to(needs) == 0


GPU, NPU = "nvidia.com/gpu", "example.com/npu"


def with_amounts(name: str, **amounts: str) -> Node:
    named = {"gpu": GPU, "npu": NPU}
    allocatable = {"cpu": "8"} | {named[key]: amount for key, amount in amounts.items()}
    return Node(name, name, {}, allocatable=allocatable)


def test_pod_with_devices_gets_nodes_where_all_devices_are_allocatable() -> None:
    nodes = Nodes({"n": with_amounts("n", gpu="4"), "o": with_amounts("o"), "p": Node("p", "p", {})})
    anywhere = NodeConstraints.parse({})
    assert anywhere.with_devices([]) == anywhere
    assert nodes.open_to(anywhere) == nodes.named("nop")
    needs = anywhere.with_devices([GPU])
    assert nodes.open_to(needs) == nodes.named("np")  # no kubelet has reported on p
    assert list(nodes.closed_to(needs)) == [(NotServed(GPU), nodes.named("o"))]
    nodes = nodes.with_node("o", with_amounts("o", gpu="2", npu="1"))  # registered later
    assert nodes.open_to(needs) == nodes.named("nop")
    assert nodes.open_to(anywhere.with_devices([GPU, NPU])) == nodes.named("op")
    nodes = nodes.with_node("n", with_amounts("n", gpu="0"))  # the device plugin has ended
    assert nodes.open_to(needs) == nodes.named("op")
    assert needs.with_claimed([]).with_agent().demands.devices == [GPU]
