"""Tests of the topology files: the text of topology.yaml and topology.conf, and the reading of a
text."""

from dataclasses import replace

import pytest
import yaml

from slurm_cluster.topology import files
from slurm_cluster.topology.build import build
from slurm_cluster.topology.files import WrongTopology
from slurm_cluster.topology.model import Kind, Topology, Unit
from tests.slurm_cluster.topology.labels import BLOCKS, TREE, places, racks

TREE_YAML = """\
- topology: "default"
  cluster_default: true
  tree:
    switches:
    - {switch: "cluster", children: "spine-[0-1]"}
    - {switch: "leaf-0", nodes: "node-[0-1]"}
    - {switch: "leaf-1", nodes: "node-[2-3]"}
    - {switch: "spine-0", children: "leaf-0"}
    - {switch: "spine-1", children: "leaf-1"}
"""
TREE_CONF = """\
SwitchName=cluster Switches=spine-[0-1]
SwitchName=leaf-0 Nodes=node-[0-1]
SwitchName=leaf-1 Nodes=node-[2-3]
SwitchName=spine-0 Switches=leaf-0
SwitchName=spine-1 Switches=leaf-1
"""
SMALL_BLOCK = Topology(Kind.BLOCK, (Unit("b1", ("n1", "n2")), Unit("b2", ("n3",)), Unit("b3")), (2, 4))


def test_a_tree_is_written_and_read() -> None:
    tree = build(TREE, racks(2, 2, spines=2)).topology
    assert files.to_yaml(tree) == TREE_YAML
    assert files.to_conf(tree) == (TREE_CONF, ())
    assert files.read(TREE_YAML) == files.read(TREE_CONF) == tree


def test_blocks_are_written_and_read() -> None:
    conf = files.to_conf(SMALL_BLOCK)
    assert conf.text == "BlockName=b1 Nodes=n[1-2]\nBlockSizes=2,4\n"
    assert conf.left_out == ("b2", "b3")
    assert files.read(files.to_yaml(SMALL_BLOCK)) == SMALL_BLOCK
    assert files.read(conf.text) == replace(SMALL_BLOCK, units=SMALL_BLOCK.units[:1])


def test_topology_conf_omits_switches_without_nodes_and_their_parents() -> None:
    before = build(TREE, racks(2, 2, spines=2)).topology
    gone = build(TREE, racks(1, 2), before).topology
    assert files.to_conf(gone).left_out == ("leaf-1", "spine-1")
    assert "SwitchName=cluster Switches=spine-0\n" in files.to_conf(gone).text


@pytest.mark.parametrize("name", ["1", "007", "1e3", "0x10", "null", "true", "1.5", "2026-11-27", "no"])
def test_names_that_yaml_would_misread_stay_strings(name: str) -> None:
    tree = build(TREE, places(f"n1 s1 {name}")).topology
    text = files.to_yaml(tree)
    assert files.read(text) == tree
    assert {type(each["switch"]) for each in yaml.safe_load(text)[0]["tree"]["switches"]} == {str}


def test_a_file_written_by_hand_is_read() -> None:
    text = """
    # ours
    - topology: flat
      flat: true
    - topology: racks
      cluster_default: true
      block:
        block_sizes: [2]
        blocks: [{block: b1, nodes: "n[1-2]"}]
    """
    assert files.read(text) == Topology(Kind.BLOCK, (Unit("b1", ("n1", "n2")),), (2,), "racks")
    conf = "switchname=s1 NODES=n1 LinkSpeed=4 # fast\n\nSwitchName=s0 Switches=s1\n"
    assert files.read(conf).by_name["s0"] == Unit("s0", children=("s1",))


@pytest.mark.parametrize(
    "text", ["- topology: flat\n  flat: true", "- {", "- 1", "Nodes", "SwitchName=a Nodes=n[", "a: b"]
)
def test_an_invalid_topology_is_rejected(text: str) -> None:
    with pytest.raises(WrongTopology):
        files.read(text)


def test_blocks_have_their_sizes_in_both_files() -> None:
    blocks = build(BLOCKS, places(*(f"n{index} b{index // 4}" for index in range(8)))).topology
    assert "    block_sizes: [4, 8]\n" in files.to_yaml(blocks)
    assert files.to_conf(blocks).text.endswith("BlockSizes=4,8\n")
