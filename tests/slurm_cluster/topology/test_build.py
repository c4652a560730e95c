"""Tests of topologies from labels: equal Nodes give equal trees or blocks, and contradicting or missing
labels are reported."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_cluster.topology import files
from slurm_cluster.topology.build import build
from slurm_cluster.topology.model import Kind, Topology, Unit
from slurm_cluster.topology.places import Place, Reader, standing
from slurm_cluster.topology.rules import Members, Names, Rules
from tests.slurm_cluster.topology.labels import (
    BLOCKS,
    LEAF,
    SPINE,
    TREE,
    ZONE,
    made,
    node,
    places,
    problems_of,
    racks,
    shown,
)

VALUES = st.sampled_from(["a", "b", "c", "1", "2", "", "cluster", "unlabelled", "x" * 63, "9" * 30])
PLACES = st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=12).map(
    lambda paths: [
        Place(f"n{index}", tuple(value or None for value in path)) for index, path in enumerate(paths)
    ]
)


UNLABELLED = f"label {LEAF} is missing"
CONTRADICTS = "the labels contradict those of other Nodes"
ZONES = Rules(Kind.TREE, (ZONE, SPINE, LEAF))
PATHS = replace(TREE, names=Names.PATH)
OF_SPINES = Rules(Kind.BLOCK, (SPINE, LEAF), (1,))
REPORTED = replace(TREE, members=Members.REPORTED)
FEW = "block b2 has fewer nodes than a base block (4)"


@pytest.mark.parametrize(
    ("rules", "rows", "units", "wrong"),
    [
        (
            TREE,
            "n1 s1 l1, n2 s1 l2, n3 s2 l3, n4 s2 l3",
            "cluster=s1 s2, l1=n1, l2=n2, l3=n3 n4, s1=l1 l2, s2=l3",
            {},
        ),
        # Without a root, no job uses nodes of two spines.
        (replace(TREE, root=None), "n1 s1 l1, n2 s2 l2", "l1=n1, l2=n2, s1=l1, s2=l2", {}),
        # Blocks of the same spine are neighbours in the list.
        (OF_SPINES, "n1 s2 b1, n2 s1 b2, n3 s2 b3, n4 s1 b10", "b2=n2, b10=n4, b1=n1, b3=n3", {}),
        (
            TREE,
            "n1 s1 l1, n2 s1 -, n3 - -",
            "cluster=s1 unlabelled, l1=n1, s1=l1, unlabelled=n2 n3",
            {UNLABELLED: "n2 n3"},
        ),
        (replace(BLOCKS, block_sizes=(1,)), "n1 b1, n2 -", "b1=n1", {UNLABELLED: "n2"}),
        # A Node without the label of the spine gets the spine of another Node with the same leaf, if
        # this other Node has the label.
        (TREE, "n1 s1 l1, n2 - l1", "cluster=s1, l1=n1 n2, s1=l1", {}),
        (TREE, "n1 - l1, n2 s1 l2", "cluster=l1 s1, l1=n1, l2=n2, s1=l2", {}),
        # A label that no Node has makes no tier.
        (ZONES, "n1 z1 - l1, n2 z1 - l2", "cluster=z1, l1=n1, l2=n2, z1=l1 l2", {}),
        (
            TREE,
            "n1 s1 l1, n2 s1 l1, n3 s2 l1, n4 s2 l2",
            "cluster=s1 s2 unlabelled, l1=n1 n2, l2=n4, s1=l1, s2=l2, unlabelled=n3",
            {CONTRADICTS: "n3"},
        ),
        # `a` is the leaf of n2 and n3, so no Node may have `a` as its spine: slurmctld ends if a switch
        # is its own child.
        (
            TREE,
            "n1 a a, n2 s1 a, n3 s1 a, n4 a b",
            "cluster=s1 unlabelled, a=n2 n3, s1=a, unlabelled=n1 n4",
            {CONTRADICTS: "n1 n4"},
        ),
        (PATHS, "n1 a 1, n2 a 2, n3 b 1", "cluster=a b, a=a.1 a.2, a.1=n1, a.2=n2, b=b.1, b.1=n3", {}),
        (BLOCKS, "n0 b1, n1 b1, n2 b1, n3 b1, n8 b2", "b1=n0 n1 n2 n3, b2=n8", {FEW: "n8"}),
        (REPORTED, "n1 s1 l1", "cluster=s1, l1=, s1=l1", {}),
        (
            REPORTED,
            "n1 s1 l1, n2 - -",
            "cluster=s1 unlabelled, l1=, s1=l1, unlabelled=n2",
            {UNLABELLED: "n2"},
        ),
    ],
)
def test_labels_make_a_topology(rules: Rules, rows: str, units: str, wrong: dict[str, str]) -> None:
    built = build(rules, places(*rows.split(", ")))
    assert ", ".join(f"{name}={below}" for name, below in shown(built.topology).items()) == units
    assert problems_of(built) == wrong


@pytest.mark.parametrize("value", ["cluster", "unlabelled", "7" * 19])
def test_a_label_value_that_is_no_valid_name_is_reported(value: str) -> None:
    built = build(TREE, places("n1 s1 l1", f"n2 s1 {value}"))
    assert shown(built.topology)["unlabelled"] == "n2"
    assert [*problems_of(built).values()] == ["n2"]


def test_a_path_that_is_too_long_is_reported() -> None:
    built = build(replace(TREE, names=Names.PATH), places(f"n1 {'s' * 40} {'l' * 40}"))
    assert "longer than 64" in next(iter(problems_of(built)))


def test_a_removed_node_changes_one_line() -> None:
    found = racks(6, 4, spines=2)
    before = build(TREE, found).topology
    after = build(TREE, found[1:], before).topology
    lines = [set(files.to_yaml(each).splitlines()) for each in (before, after)]
    assert len(lines[0] - lines[1]) == 1


def test_a_switch_without_nodes_keeps_its_place() -> None:
    before = build(TREE, racks(4, 2, spines=2)).topology
    after = build(TREE, racks(1, 2), before).topology
    assert after.parents == before.parents
    assert [unit.name for unit in after.units] == [unit.name for unit in before.units]


def test_a_new_block_moves_no_other_block() -> None:
    """Slurm combines neighbouring blocks into larger blocks. A new block in the middle of the list would
    change all larger blocks after the new block, so new blocks come last."""
    before = build(BLOCKS, places("n1 b1", "n3 b3")).topology
    after = build(BLOCKS, places("n2 b2", "n3 b3"), before).topology
    assert [*shown(after).items()] == [("b1", ""), ("b3", "n3"), ("b2", "n2")]


def test_a_kept_switch_is_no_child_of_a_switch_with_nodes() -> None:
    """Before the change, l1 was a parent of switches, and now l1 has nodes. Slurm rejects a switch with
    both nodes and switches, so the kept switch `old` gets another parent."""
    before = Topology(Kind.TREE, (Unit("l1", children=("old",)), Unit("old", ("n9",))))
    assert made(TREE, places("n1 s1 l1"), before)["cluster"] == "old s1"


@given(PLACES, PLACES, st.sampled_from(list(Names)), st.randoms())
def test_any_labels_make_the_same_valid_tree_each_time(
    found: list[Place], earlier: list[Place], names: Names, order: object
) -> None:
    rules = Rules(Kind.TREE, (ZONE, SPINE, LEAF), names=names)
    before = build(rules, earlier).topology
    built = build(rules, found, before)
    is_a_tree(built.topology)
    assert sorted(node for unit in built.topology.units for node in unit.nodes) == sorted(
        place.node for place in found
    )
    assert {unit.name for unit in before.units} - {"unlabelled"} <= built.topology.by_name.keys()
    again = [*found]
    order.shuffle(again)  # type: ignore[attr-defined]
    assert build(rules, again, before) == built
    assert build(rules, found, built.topology) == built
    assert files.read(files.to_yaml(built.topology)) == built.topology


def is_a_tree(topology: Topology) -> None:
    """Checks the tree: each name is one switch, each child exists and has one parent, and only leaves
    have nodes."""
    names = [unit.name for unit in topology.units]
    children = [child for unit in topology.units for child in unit.children]
    assert len(names) == len({*names})
    assert len(children) == len({*children})
    assert {*children} == {*names} - {"cluster"}
    assert not [unit for unit in topology.units if unit.nodes and unit.children]
    for name in names:
        while name != "cluster":
            name = topology.parents[name]  # noqa: PLW2901 -- up to the root


def test_nodes_match_the_selector_and_have_their_slurm_name() -> None:
    reader = Reader((SPINE, LEAF), {"example.io/gpu": "", "example.io/pool": "a"}, "example.io/slurm")
    assert reader.place_of(node("n1", gpu="h100", pool="b", leaf="l1")) is None
    assert reader.place_of(node("n1", pool="a", leaf="l1")) is None
    taken = node("n1", gpu="h100", pool="a", leaf="l1", slurm="gpu-01")
    assert reader.place_of(taken) == Place("gpu-01", (None, "l1"))


def test_at_most_one_kubernetes_node_counts_for_a_slurm_node() -> None:
    one, other = places("gpu-01 s1 l1", "gpu-01 s1 l2")
    assert standing({"gpu-01": one, "ip-1": other}) == (other,)
    assert standing({"ip-1": one, "ip-2": other}) == ()
