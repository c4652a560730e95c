"""Tests of the picture: the picture is well-formed and stable, and shows every node once, with the
node's state."""

from collections import Counter
from xml.etree import ElementTree as ET

import pytest

from slurm_cluster.topology.build import build
from slurm_cluster.topology.drawing import Look, draw, look_of
from slurm_cluster.topology.model import Kind, Topology, Unit
from slurm_cluster.topology.running import SlurmFailed, topology_of
from tests.slurm_cluster.topology.labels import TREE, racks

SVG = "{http://www.w3.org/2000/svg}"


def titles(picture: str) -> Counter[str]:
    """Returns the texts that a viewer shows for the element under the mouse pointer."""
    root = ET.fromstring(picture)
    return Counter(title.text or "" for title in root.iter(f"{SVG}title"))


def texts(picture: str) -> list[str]:
    return [text.text or "" for text in ET.fromstring(picture).iter(f"{SVG}text")]


def boxes(picture: str) -> list[tuple[float, float, float, float]]:
    """Returns the rectangles of the nodes."""
    root = ET.fromstring(picture)
    cells = [box for group in root.iter(f"{SVG}g") for box in group.findall(f"{SVG}rect")]
    sides = ("x", "y", "width", "height")
    return [tuple(float(box.attrib[side]) for side in sides) for box in cells]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("look", "states"),
    [
        (Look.IDLE, "idle planned"),
        (Look.MIXED, "mixed mixed-"),
        (Look.ALLOCATED, "allocated completing"),
        (Look.DRAINED, "draining drained*"),
        (Look.DOWN, "down idle* inval"),
        (Look.OFF, "idle~ powering_down"),
    ],
)
def test_states_of_sinfo_have_looks(look: Look, states: str) -> None:
    assert {look_of(state) for state in states.split()} == {look}


def test_few_nodes_have_their_names_in_the_picture() -> None:
    topology = build(TREE, racks(2, 4)).topology
    picture = draw(topology, {f"node-{index}": "idle" for index in range(7)} | {"node-1": "mixed"})
    assert {f"node-{index}" for index in (0, 2, 3, 4, 5, 6)} <= {*texts(picture)}
    assert {"node-1 m", "node-7 ?"} <= {*texts(picture)}
    assert titles(picture)["node-1: mixed: partly allocated"] == 1
    assert "leaf-0 (4)" in texts(picture)


@pytest.mark.parametrize(("leaves", "size"), [(32, 32), (8, 128)])
def test_squares_of_a_thousand_nodes_do_not_overlap(leaves: int, size: int) -> None:
    topology = build(TREE, racks(leaves, size, spines=4)).topology
    picture = draw(topology, {f"node-{index}": "allocated" for index in range(1024)})
    cells = boxes(picture)
    assert len(cells) == 1024
    assert len({(x, y) for x, y, _, _ in cells}) == 1024
    root = ET.fromstring(picture)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(x + wide <= width and y + high <= height for x, y, wide, high in cells)
    assert height < 2_000  # at most two screens high


def test_the_picture_is_the_same_each_time() -> None:
    topology = build(TREE, racks(4, 8, spines=2)).topology
    states = {f"node-{index}": "idle" for index in range(32)}
    assert draw(topology, states) == draw(topology, dict(reversed(states.items())))


def test_a_name_cannot_break_the_picture() -> None:
    topology = Topology(Kind.BLOCK, (Unit("<b&\"'>", ("n<1>",)),), (1,))
    assert "n<1>" in texts(draw(topology))


SHOWN_TREE = """\
SwitchName=cluster Level=1 LinkSpeed=1 Nodes=node-[1-4] Switches=l[1-2]
SwitchName=l1 Level=0 LinkSpeed=1 Nodes=node-[1-2]
SwitchName=l2 Level=0 LinkSpeed=1 Nodes=node-[3-4]
"""
SHOWN_BLOCKS = """\
BlockName=b1 BlockIndex=0 Nodes=node-[1-2] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=node-[3-4] BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=2 Nodes=node-[1-4] BlockSize=4
"""


def test_the_output_of_scontrol_is_read() -> None:
    tree, blocks = topology_of(SHOWN_TREE), topology_of(SHOWN_BLOCKS)
    assert tree.by_name["cluster"] == Unit("cluster", children=("l1", "l2"))
    assert tree.by_name["l2"].nodes == ("node-3", "node-4")
    assert [unit.name for unit in blocks.units] == ["b1", "b2"]
    assert blocks.block_sizes == (2, 4)
    with pytest.raises(SlurmFailed):
        topology_of("No topology information available\n")
