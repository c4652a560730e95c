"""Tests of the rules for tiers: the allowed rules, and the rules that Slurm would reject."""

import pytest

from slurm_cluster.topology.model import Kind, in_order, problem_of_name, problem_of_sizes
from slurm_cluster.topology.rules import PRESETS, Preset, Rules, WrongRules, tiers_of


@pytest.mark.parametrize("sizes", [(1,), (4, 8, 32), (18, 36, 72), (30, 120)])
def test_sizes_that_slurm_takes(sizes: tuple[int, ...]) -> None:
    assert problem_of_sizes(sizes) is None


@pytest.mark.parametrize("sizes", [(), (0,), (-4,), (4, 4), (8, 4), (4, 12), (4, 6), (1, 1 << 16)])
def test_sizes_that_slurm_refuses(sizes: tuple[int, ...]) -> None:
    assert problem_of_sizes(sizes)


@pytest.mark.parametrize("name", ["a", "1", "a.b-c_d", "x" * 64, "9" * 18])
def test_names_that_slurm_takes(name: str) -> None:
    assert problem_of_name(name) is None


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a,b", "a[1]", "a:b", "a=b", "9" * 19, "ä"])
def test_names_that_slurm_refuses(name: str) -> None:
    assert problem_of_name(name)


@pytest.mark.parametrize(
    ("kind", "tiers", "sizes"),
    [
        (Kind.TREE, (), ()),
        (Kind.TREE, ("a", "a"), ()),
        (Kind.TREE, ("a",), (4,)),
        (Kind.BLOCK, ("a",), ()),
        (Kind.BLOCK, ("a",), (4, 6)),
    ],
)
def test_impossible_rules_are_rejected(
    kind: Kind, tiers: tuple[str, ...], sizes: tuple[int, ...]
) -> None:
    with pytest.raises(WrongRules):
        Rules(kind, tiers, sizes)


def test_a_preset_has_tiers_of_its_own() -> None:
    assert {*PRESETS} == {(preset, kind) for preset in Preset for kind in Kind}
    assert tiers_of(Kind.TREE, Preset.TOPOGRAPH, ())[-1] == "fabric.topograph.run/tier-0"
    with pytest.raises(WrongRules):
        tiers_of(Kind.TREE, Preset.TOPOGRAPH, ("a",))


def test_names_are_sorted_in_natural_order() -> None:
    assert in_order(["b10", "b2", "a", "b2x", "10", "9"]) == ("a", "b2", "b2x", "b10", "9", "10")
