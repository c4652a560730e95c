"""Tests of messages about SelectTypeParameters without memory, for the cluster and for partitions."""

from dataclasses import replace

import pytest

from extender.node_view.uncounted_memory import uncounted_memory
from extender.node_view.view import ClusterView
from extender.pod_request.constraints.node_constraints import Node
from slurm_client.in_memory import partition
from slurm_client.model import Partition
from tests.builders import node_manifest
from wellknown.names import NODE_NAME_LABEL

NODE = Node.parse(node_manifest("n1"), NODE_NAME_LABEL)
COUNTED, UNCOUNTED = ("CR_CORE_MEMORY",), ("CR_SOCKET", "CR_PACK_NODES")


def having(name: str, nodes: str, *parameters: str, sharing: str = "NO") -> Partition:
    made = partition(name, nodes)
    return replace(made, select_type_parameters=parameters, oversubscribe=sharing)


@pytest.mark.parametrize(
    ("parameters", "partitions", "lacking"),
    [
        (COUNTED, (having("main", "n1"),), ""),
        (COUNTED, (having("main", "n1", "CR_CORE_MEMORY"),), ""),
        (COUNTED, (having("main", "n[1-4]", "CR_CORE"),), "of partition main is CR_CORE"),
        (COUNTED, (having("others", "x[1-4]", "CR_CORE"),), ""),
        (UNCOUNTED, (), "SelectTypeParameters is CR_SOCKET,CR_PACK_NODES"),
        (UNCOUNTED, (having("others", "x1", "CR_CORE_MEMORY"),), "is CR_SOCKET,CR_PACK_NODES"),
        (UNCOUNTED, (having("main", "n1", "CR_CORE_MEMORY"),), ""),
        (UNCOUNTED, (having("a", "n1", "CR_CORE_MEMORY"), having("b", "n1")), "CR_PACK_NODES"),
        ((), (having("main", "n1"),), ""),
        ((), (having("main", "n1", "CR_CPU"),), "of partition main is CR_CPU"),
    ],
)
def test_parameters_without_memory_are_named(
    parameters: tuple[str, ...], partitions: tuple[Partition, ...], lacking: str
) -> None:
    view = ClusterView({"n1": NODE}, {each.name: each for each in partitions})
    words = uncounted_memory(parameters, view)
    assert (words or "").partition(", without memory")[0].endswith(lacking)
    assert bool(words) is bool(lacking)


WHOLE, WHOLE_WITHOUT = (having("whole", "n1", *own, sharing="EXCLUSIVE") for own in ((), UNCOUNTED))


@pytest.mark.parametrize(
    ("parameters", "partitions", "select_type", "lacking"),
    [
        (UNCOUNTED, (WHOLE,), None, False),
        (COUNTED, (WHOLE_WITHOUT,), None, False),
        (UNCOUNTED, (WHOLE, having("main", "n2")), None, True),
        (UNCOUNTED, (WHOLE, having("main", "n2", *COUNTED)), None, False),
        (COUNTED, (WHOLE_WITHOUT, having("main", "n[1-2]")), None, True),
        (UNCOUNTED, (having("main", "n1"),), "select/cons_tres", True),
        (UNCOUNTED, (having("main", "n1"),), "select/linear", False),
        (UNCOUNTED, (having("main", "n1", sharing="YES:4"),), "select/linear", True),
        (UNCOUNTED, (having("main", "n1", sharing="FORCE:2"),), "select/linear", True),
        (UNCOUNTED, (), "select/linear", False),
    ],
)
def test_whole_nodes_need_no_memory_in_the_parameters(
    parameters: tuple[str, ...],
    partitions: tuple[Partition, ...],
    select_type: str | None,
    lacking: bool,
) -> None:
    nodes = {name: Node.parse(node_manifest(name), NODE_NAME_LABEL) for name in ("n1", "n2")}
    view = ClusterView(nodes, {each.name: each for each in partitions})
    assert (uncounted_memory(parameters, view, select_type) is not None) is lacking


def test_cluster_and_partitions_are_named_together() -> None:
    partitions = {"main": having("main", "n1"), "bare": having("bare", "n1", "CR_CPU")}
    view = ClusterView({"n1": NODE}, partitions)
    assert uncounted_memory(("CR_CORE",), view) == (
        "SelectTypeParameters is CR_CORE; SelectTypeParameters of partition bare is CR_CPU, without"
        " memory: Slurm gives the same memory to several jobs"
    )
