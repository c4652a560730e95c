"""Tests of the allocation in a Pod's annotations. The extender writes the allocation, and the node agent
reads the allocation."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellknown.allocation import Allocation
from wellknown.names import GRANTED, JOB_ID, NODE

PLACED = {JOB_ID: "7", NODE: "n1"}


@pytest.mark.parametrize(
    "allocation",
    [
        Allocation(40_000_000, "n1"),
        Allocation(40_000_000, "n1", "gpu:2(IDX:0-1)"),
        Allocation(7, "n1", "gpu:h100:2(IDX:0,3),shard:h100:4", "0-3,8", 2048),
        Allocation(7, "n1", cores="0", memory_mb=1),
    ],
)
def test_allocation_is_read_back_from_its_annotations(allocation: Allocation) -> None:
    assert Allocation.parse(allocation.annotations()) == allocation


def test_sockets_are_read_back_and_do_not_affect_equality() -> None:
    allocation = Allocation(7, "n1", cores="0", sockets="8x1")
    read = Allocation.parse(allocation.annotations())
    assert read == allocation == Allocation(7, "n1", cores="0")
    assert read is not None
    assert read.sockets == "8x1"


def test_allocation_names_the_slurm_node_of_the_grant() -> None:
    """In annotations of earlier versions, the name is missing. So two allocations are equal even if only
    the first allocation has the name."""
    named = Allocation(7, "n1", slurm_node="gpu-07")
    read = Allocation.parse(named.annotations())
    assert read is not None
    assert read.slurm_node == "gpu-07"
    assert named == Allocation(7, "n1")


def test_annotation_is_compact_json_with_a_version() -> None:
    written = Allocation(7, "n1", "gpu:2(IDX:0-1)", "0-3", 512).annotations()
    assert written[GRANTED] == '{"v":1,"cores":"0-3","memoryMiB":512,"gres":"gpu:2(IDX:0-1)"}'
    assert Allocation(7, "n1").annotations()[GRANTED] == '{"v":1}'


@pytest.mark.parametrize(
    "annotations", [{}, {JOB_ID: "7"}, {NODE: "n1"}, {JOB_ID: "7", NODE: ""}, {JOB_ID: "", NODE: "n1"}]
)
def test_incomplete_allocation_is_not_read(annotations: dict[str, str]) -> None:
    assert Allocation.parse(annotations) is None


@pytest.mark.parametrize(
    "granted",
    [
        "",
        "gpu:2",
        "[]",
        "{}",
        '{"v":2}',
        '{"v":"1"}',
        '{"v":1,"cores":[0]}',
        '{"v":1,"cores":"3-1"}',
        '{"v":1,"cores":"0-99999"}',
        '{"v":1,"gres":2}',
        '{"v":1,"sockets":8}',
        '{"v":1,"sockets":"8"}',
        '{"v":1,"slurmNode":2}',
        '{"v":1,"memoryMiB":"1"}',
        '{"v":1,"memoryMiB":-1}',
        '{"v":1,"memoryMiB":true}',
        json.dumps({"v": 1, "gres": "g" * 70_000}),
    ],
)
def test_malformed_annotation_is_no_allocation(granted: str) -> None:
    assert Allocation.parse(PLACED | {GRANTED: granted}) is None


@given(st.text())
def test_any_text_is_parsed_without_an_exception(text: str) -> None:
    Allocation.parse(PLACED | {GRANTED: text})
