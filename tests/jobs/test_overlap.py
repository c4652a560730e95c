"""Tests of the cores and devices that two slots share. A slot is the part of a job's grant that one Pod
gets."""

import pytest

from extender.jobs.overlap import Unit, common, covers, without
from wellknown.allocation import Allocation

NOTHING = set[Unit]()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"cores": "0-3"}, {"cores": "4-7"}, NOTHING),
        ({"cores": "0-3"}, {"cores": "3-7"}, {("core", 3)}),
        ({"cores": "0,64"}, {"cores": "64"}, {("core", 64)}),
        ({"cores": ""}, {"cores": "0-7"}, NOTHING),
        ({"gres": "gpu:h100:2(IDX:0-1)"}, {"gres": "gpu:a100:1(IDX:1)"}, {("gpu", 1)}),
        ({"gres": "gpu:h100:2(IDX:0-1)"}, {"gres": "gpu:h100:1(IDX:2)"}, NOTHING),
        ({"gres": "gpu:1(IDX:0)"}, {"gres": "nic:1(IDX:0)"}, NOTHING),
        ({"gres": "shard:2(2/4)"}, {"gres": "shard:2(2/4)"}, NOTHING),
        ({"gres": "shard:2(2/4)"}, {"gres": "mps:50(50/100)"}, NOTHING),
        ({"gres": "shard:2(0/4,2/4)"}, {"gres": "gpu:h100:2(IDX:0-1)"}, {("gpu", 1)}),
        ({"gres": "shard:2(0/4,2/4)"}, {"gres": "gpu:h100:1(IDX:0)"}, NOTHING),
        ({"gres": "gpu:1"}, {"gres": "gpu:1"}, NOTHING),
        ({"gres": "gpu:1", "cores": "0"}, {"gres": "gpu:1(IDX:0)", "cores": "0-1"}, {("core", 0)}),
    ],
)
def test_common_returns_the_units_of_both_slots(
    one: dict[str, str], other: dict[str, str], expected: set[Unit]
) -> None:
    slots = Allocation(1, "n1", **one), Allocation(2, "n1", **other)  # type: ignore[arg-type]
    assert common(*slots) == common(*reversed(slots)) == expected


def test_slots_of_two_nodes_have_nothing_in_common() -> None:
    assert common(Allocation(1, "n1", cores="0"), Allocation(2, "n2", cores="0")) == NOTHING


@pytest.mark.parametrize(
    ("taken", "cores"),
    [
        (NOTHING, "0-3"),
        ({("core", 0), ("core", 2)}, "1,3"),
        ({("core", 9)}, "0-3"),
        ({("core", number) for number in range(4)}, None),
        ({("gpu", 0)}, None),
    ],
)
def test_without_removes_the_taken_cores_of_a_slot(taken: set[Unit], cores: str | None) -> None:
    left = without(Allocation(1, "n1", "gpu:1(IDX:0)", "0-3"), frozenset(taken))
    assert (left.cores if left else None) == cores


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"cores": "0-3"}, {"cores": "1-2"}, True),
        ({"cores": "0-3"}, {"cores": "3-4"}, False),
        ({"cores": "0-3"}, {}, True),
        ({"gres": "gpu:2(IDX:0-1)"}, {"gres": "gpu:1(IDX:1)"}, True),
        ({"gres": "gpu:2(IDX:0-1)"}, {"gres": "gpu:1(IDX:2)"}, False),
        ({"gres": "shard:2(2/4)"}, {"gres": "shard:2(2/4)"}, True),
        ({"gres": "shard:2(0/4,2/4)"}, {"gres": "shard:2(2/4,0/4)"}, False),
        ({"gres": "gpu:1(IDX:0)"}, {"gres": "shard:2(2/4)"}, True),
        ({"gres": "shard:2(2/4)"}, {"gres": "gpu:1(IDX:0)"}, False),
    ],
)
def test_slot_covers_another_slot_with_all_its_units(
    one: dict[str, str], other: dict[str, str], expected: bool
) -> None:
    slots = Allocation(1, "n1", **one), Allocation(2, "n1", **other)  # type: ignore[arg-type]
    assert covers(*slots) is expected


def test_slot_covers_no_slot_of_another_node() -> None:
    assert not covers(Allocation(1, "n1", cores="0"), Allocation(2, "n2", cores="0"))
