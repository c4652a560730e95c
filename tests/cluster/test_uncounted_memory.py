"""Messages about SelectTypeParameters without memory, of the cluster and of partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.cluster.uncounted_memory import uncounted_memory
from extender.cluster.view import ClusterView
from extender.request.node_constraints import Node
from slurm_client.in_memory import partition
from slurm_client.model import Partition
from tests.builders import node_manifest
from wellknown.names import NODE_NAME_LABEL

NODE = Node.parse(node_manifest("n1"), NODE_NAME_LABEL)
COUNTED, UNCOUNTED = ("CR_CORE_MEMORY",), ("CR_SOCKET", "CR_PACK_NODES")


def having(name: str, nodes: str, *parameters: str) -> Partition:
    return replace(partition(name, nodes), select_type_parameters=parameters)


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


def test_cluster_and_partitions_are_named_together() -> None:
    partitions = {"main": having("main", "n1"), "bare": having("bare", "n1", "CR_CPU")}
    view = ClusterView({"n1": NODE}, partitions)
    assert uncounted_memory(("CR_CORE",), view) == (
        "SelectTypeParameters is CR_CORE; SelectTypeParameters of partition bare is CR_CPU, without"
        " memory: Slurm gives the same memory to several jobs"
    )
